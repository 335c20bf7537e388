// Devices and primary contexts of the simulated machine.
#include <cstring>

#include "tests/simcuda/space_fixture.h"

namespace weir::sim {

TEST_CASE("classic memory of a peer needs peer access", "[device]") {
  Config config;
  config.devices = 2;
  Machine machine(config);
  const CUdeviceptr memory = NewMemory();
  const CUcontext peer = Machine::UseDevice(1);
  CUcontext owner = nullptr;
  REQUIRE(Gpu().cuDevicePrimaryCtxRetain(&owner, 0) == CUDA_SUCCESS);
  CHECK(Gpu().cuCtxEnablePeerAccess(peer, 0) == CUDA_ERROR_INVALID_DEVICE);
  CHECK(Gpu().cuCtxDisablePeerAccess(owner) == CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  REQUIRE(Gpu().cuCtxEnablePeerAccess(owner, 0) == CUDA_SUCCESS);
  CHECK(Gpu().cuCtxEnablePeerAccess(owner, 0) == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  CHECK(TryWrite(memory) == CUDA_SUCCESS);
  REQUIRE(Gpu().cuCtxDisablePeerAccess(owner) == CUDA_SUCCESS);
  CHECK(TryWrite(memory) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("the device calls itself simulated", "[device]") {
  Config config;
  config.devices = 2;
  config.memory_bytes = 64 * kMiB;
  Machine machine(config);
  char text[64] = {};
  REQUIRE(Gpu().cuDeviceGetName(text, sizeof(text), 1) == CUDA_SUCCESS);
  CHECK(std::string(text) == "Weir simulated GPU");
  int count = 0;
  REQUIRE(Gpu().cuDeviceGetCount(&count) == CUDA_SUCCESS);
  CHECK(count == 2);
  size_t bytes = 0;
  REQUIRE(Gpu().cuDeviceTotalMem(&bytes, 1) == CUDA_SUCCESS);
  CHECK(bytes == 64 * kMiB);
  CUuuid a{};
  CUuuid b{};
  REQUIRE(Gpu().cuDeviceGetUuid(&a, 0) == CUDA_SUCCESS);
  REQUIRE(Gpu().cuDeviceGetUuid(&b, 1) == CUDA_SUCCESS);
  CHECK(std::memcmp(&a, &b, sizeof(a)) != 0);
  REQUIRE(Gpu().cuDeviceGetPCIBusId(text, sizeof(text), 1) == CUDA_SUCCESS);
  CHECK(std::string(text) == "0000:02:00.0");
  CUdevice device = -1;
  CHECK(Gpu().cuDeviceGet(&device, 2) == CUDA_ERROR_INVALID_DEVICE);
  int value = 0;
  CHECK(Gpu().cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0) == CUDA_SUCCESS);
  CHECK(value == -1);
  CHECK(Gpu().cuDeviceCanAccessPeer(&value, 0, 1) == CUDA_SUCCESS);
  CHECK(value == 1);
  const char* name = nullptr;
  CHECK(Gpu().cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &name) == CUDA_SUCCESS);
  CHECK(std::string(name) == "CUDA_ERROR_OUT_OF_MEMORY");
  CHECK(Gpu().cuGetErrorString(static_cast<CUresult>(998), &name) == CUDA_ERROR_INVALID_VALUE);
  CHECK(name == nullptr);
}

TEST_CASE("calls need initialization first and a context second", "[context]") {
  Reset();
  CUdeviceptr memory = 0;
  int version = 0;
  CHECK(Gpu().cuMemAlloc(&memory, 512) == CUDA_ERROR_NOT_INITIALIZED);
  CHECK(Gpu().cuDriverGetVersion(&version) == CUDA_SUCCESS);
  CHECK(version == 13000);
  CHECK(Gpu().cuInit(1) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(Gpu().cuInit(0) == CUDA_SUCCESS);
  CHECK(Gpu().cuMemAlloc(&memory, 512) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(Gpu().cuCtxSynchronize() == CUDA_ERROR_INVALID_CONTEXT);
  CUcontext context = nullptr;
  REQUIRE(Gpu().cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
  CHECK(Gpu().cuMemAlloc(&memory, 512) == CUDA_ERROR_INVALID_CONTEXT);  // retained, not current
  REQUIRE(Gpu().cuCtxSetCurrent(context) == CUDA_SUCCESS);
  CHECK(Gpu().cuMemAlloc(&memory, 512) == CUDA_SUCCESS);
}

TEST_CASE("each thread has a stack of current contexts", "[context]") {
  Config config;
  config.devices = 2;
  Machine machine(config);
  CUcontext second = nullptr;
  REQUIRE(Gpu().cuDevicePrimaryCtxRetain(&second, 1) == CUDA_SUCCESS);
  CUdevice device = -1;
  REQUIRE(Gpu().cuCtxPushCurrent(second) == CUDA_SUCCESS);
  REQUIRE(Gpu().cuCtxGetDevice(&device) == CUDA_SUCCESS);
  CHECK(device == 1);
  CUcontext popped = nullptr;
  REQUIRE(Gpu().cuCtxPopCurrent(&popped) == CUDA_SUCCESS);
  CHECK(popped == second);
  REQUIRE(Gpu().cuCtxGetDevice(&device) == CUDA_SUCCESS);
  CHECK(device == 0);
  REQUIRE(Gpu().cuCtxSetCurrent(nullptr) == CUDA_SUCCESS);
  CHECK(Gpu().cuCtxPopCurrent(&popped) == CUDA_ERROR_INVALID_CONTEXT);
  CUcontext current = second;
  REQUIRE(Gpu().cuCtxGetCurrent(&current) == CUDA_SUCCESS);
  CHECK(current == nullptr);
  CHECK(Gpu().cuCtxSetCurrent(reinterpret_cast<CUcontext>(&device)) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(Gpu().cuCtxCreate(&current, 0, 0) == CUDA_ERROR_NOT_SUPPORTED);
}

TEST_CASE("the last release of a primary context frees what belongs to it", "[context]") {
  Machine machine;  // holds one reference
  NewMemory(4 * kMiB);
  NewAsync(4 * kMiB, nullptr);
  const CUdeviceptr base = NewReservation(kGranule);
  MapAt(base, kGranule, NewHandle());
  unsigned int flags = 0;
  int active = 0;
  REQUIRE(Gpu().cuDevicePrimaryCtxGetState(0, &flags, &active) == CUDA_SUCCESS);
  CHECK(active == 1);
  REQUIRE(Gpu().cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
  REQUIRE(Gpu().cuDevicePrimaryCtxGetState(0, &flags, &active) == CUDA_SUCCESS);
  CHECK(active == 0);
  CHECK(UsedBytes(0) == kGranule);  // handles belong to no context
  CUdeviceptr memory = 0;
  CHECK(Gpu().cuMemAlloc(&memory, 512) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
  CHECK(Gpu().cuDevicePrimaryCtxRelease(0) == CUDA_ERROR_INVALID_CONTEXT);
}

}  // namespace weir::sim
