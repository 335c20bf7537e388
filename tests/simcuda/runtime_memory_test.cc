// The runtime face: memory, copies and pools.
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tests/simcuda/runtime_fixture.h"

namespace weir::sim {
namespace {

TEST_CASE("the runtime's calls are counted as the driver's", "[simcuda][runtime]") {
  const RuntimeMachine machine;
  REQUIRE(cudaFree(nullptr) == cudaSuccess);  // makes the context
  CHECK(CallCount("cuInit") == 1);
  CHECK(CallCount("cuDevicePrimaryCtxRetain") == 1);
  ResetCallCounts();
  char* const memory = NewRuntimeMemory();
  int device = 0;
  REQUIRE(cudaGetDevice(&device) == cudaSuccess);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  REQUIRE(cudaFree(memory) == cudaSuccess);
  CHECK(CallCounts() == std::map<std::string, uint64_t>{{"cuMemAlloc", 1}, {"cuMemFree", 1}});
  std::thread other([] { NewRuntimeMemory(); });
  other.join();
  CHECK(CallCount("cuDevicePrimaryCtxRetain") == 0);  // the face has it
  CHECK(CallCount("cuCtxSetCurrent") == 1);
}

TEST_CASE("an allocation of nothing is null", "[simcuda][runtime]") {
  const RuntimeMachine machine;
  int dummy = 0;
  void* memory = &dummy;
  CHECK(cudaMalloc(&memory, 0) == cudaSuccess);
  CHECK(memory == nullptr);
  CHECK(cudaFree(nullptr) == cudaSuccess);
  CHECK(cudaFreeHost(nullptr) == cudaSuccess);
  CHECK(cudaMalloc(nullptr, 512) == cudaErrorInvalidValue);
  CHECK(cudaFree(&dummy) == cudaErrorInvalidValue);
}

TEST_CASE("free memory is the device's", "[simcuda][runtime]") {
  const RuntimeMachine machine;
  size_t before = 0;
  size_t after = 0;
  size_t total = 0;
  REQUIRE(cudaMemGetInfo(&before, &total) == cudaSuccess);
  NewRuntimeMemory(8 << 20);
  REQUIRE(cudaMemGetInfo(&after, &total) == cudaSuccess);
  CHECK(before - after == 8 << 20);
  CHECK(total == CurrentConfig().memory_bytes);
}

TEST_CASE("a pointer says what it is", "[simcuda][runtime]") {
  const RuntimeMachine machine(TwoDevices());
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  char* const memory = NewRuntimeMemory();
  cudaPointerAttributes attributes;
  REQUIRE(cudaPointerGetAttributes(&attributes, memory + 5) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeDevice);
  CHECK(attributes.device == 1);
  CHECK(attributes.devicePointer == memory + 5);
  CHECK(attributes.hostPointer == nullptr);

  void* pinned = nullptr;
  REQUIRE(cudaHostAlloc(&pinned, 4096, cudaHostAllocDefault) == cudaSuccess);
  REQUIRE(cudaPointerGetAttributes(&attributes, pinned) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeHost);
  CHECK(attributes.hostPointer == pinned);
  REQUIRE(cudaFreeHost(pinned) == cudaSuccess);

  void* managed = nullptr;
  REQUIRE(cudaMallocManaged(&managed, 4096, cudaMemAttachGlobal) == cudaSuccess);
  REQUIRE(cudaPointerGetAttributes(&attributes, managed) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeManaged);

  int unknown = 0;
  REQUIRE(cudaPointerGetAttributes(&attributes, &unknown) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeUnregistered);
  CHECK(attributes.device == cudaInvalidDeviceId);
  CHECK(attributes.devicePointer == nullptr);
  CHECK(attributes.hostPointer == &unknown);
}

TEST_CASE("registered host memory is the device's until it is given back", "[simcuda][runtime]") {
  const RuntimeMachine machine;
  std::vector<char> pages(3 << 12);
  REQUIRE(cudaHostRegister(pages.data(), pages.size(), cudaHostRegisterDefault) == cudaSuccess);
  CHECK(cudaHostRegister(pages.data(), 64, 0) == cudaErrorHostMemoryAlreadyRegistered);
  void* seen = nullptr;
  REQUIRE(cudaHostGetDevicePointer(&seen, pages.data(), 0) == cudaSuccess);
  CHECK(seen == pages.data());
  REQUIRE(cudaMemset(pages.data(), 3, 64) == cudaSuccess);
  CHECK(pages[63] == 3);
  CHECK(cudaHostUnregister(pages.data()) == cudaSuccess);
  CHECK(cudaHostUnregister(pages.data()) == cudaErrorHostMemoryNotRegistered);

  void* pinned = nullptr;
  unsigned int flags = 0;
  REQUIRE(cudaHostAlloc(&pinned, 64, cudaHostAllocPortable) == cudaSuccess);
  REQUIRE(cudaHostGetFlags(&flags, pinned) == cudaSuccess);
  CHECK((flags & cudaHostAllocPortable) != 0);
  CHECK(cudaFreeHost(pinned) == cudaSuccess);
  CHECK(cudaFreeHost(pinned) == cudaErrorInvalidValue);
}

TEST_CASE("rows of a pitched allocation are aligned", "[simcuda][runtime]") {
  const RuntimeMachine machine;
  void* memory = nullptr;
  size_t pitch = 0;
  REQUIRE(cudaMallocPitch(&memory, &pitch, 100, 10) == cudaSuccess);
  CHECK(pitch >= 100);
  CHECK(pitch % 256 == 0);
  REQUIRE(cudaMemset(memory, 1, pitch * 10) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
}

TEST_CASE("copies move bytes in their direction only", "[simcuda][runtime]") {
  const RuntimeMachine machine;
  char* const a = NewRuntimeMemory();
  char* const b = NewRuntimeMemory();
  const char text[] = "weir";
  char back[sizeof(text)] = "";
  REQUIRE(cudaMemcpy(a, text, sizeof(text), cudaMemcpyHostToDevice) == cudaSuccess);
  REQUIRE(cudaMemcpy(b, a, sizeof(text), cudaMemcpyDeviceToDevice) == cudaSuccess);
  REQUIRE(cudaMemcpy(back, b, sizeof(text), cudaMemcpyDefault) == cudaSuccess);
  CHECK(back == std::string("weir"));
  CHECK(cudaMemcpy(back, text, sizeof(text), cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy(a, text, sizeof(text), static_cast<cudaMemcpyKind>(7)) ==
        cudaErrorInvalidMemcpyDirection);
  REQUIRE(cudaMemset(a, 0x1234, 4096) == cudaSuccess);
  CHECK(FirstByte(a) == 0x34);
}

TEST_CASE("a pitched copy leaves out what is between the rows", "[simcuda][runtime]") {
  const RuntimeMachine machine;
  char* const memory = NewRuntimeMemory();
  const cudaStream_t stream = NewRuntimeStream();
  REQUIRE(cudaMemset(memory, '.', 12) == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);  // the stream does not wait for it
  const char rows[] = "ab-cd-ef-";
  REQUIRE(cudaMemcpy2DAsync(memory, 4, rows, 3, 2, 3, cudaMemcpyHostToDevice, stream) ==
          cudaSuccess);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  std::string back(12, ' ');
  REQUIRE(cudaMemcpy(back.data(), memory, 12, cudaMemcpyDeviceToHost) == cudaSuccess);
  CHECK(back == "ab..cd..ef..");
  CHECK(cudaMemcpy2D(memory, 4, rows, 3, 4, 2, cudaMemcpyHostToDevice) ==
        cudaErrorInvalidPitchValue);
}

TEST_CASE("copies between devices name their devices", "[simcuda][runtime]") {
  const RuntimeMachine machine(TwoDevices());
  char* const a = NewRuntimeMemory();
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  char* const b = NewRuntimeMemory();
  const cudaStream_t stream = NewRuntimeStream();
  REQUIRE(cudaMemset(b, 9, 64) == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  REQUIRE(cudaMemcpyPeerAsync(a, 0, b, 1, 64, stream) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  CHECK(FirstByte(a) == 9);
  CHECK(cudaMemcpyPeerAsync(a, 0, b, 2, 64, nullptr) == cudaErrorInvalidDevice);
}

TEST_CASE("a pool gives memory in stream order and keeps what it may", "[simcuda][runtime]") {
  const RuntimeMachine machine;
  const cudaStream_t stream = NewRuntimeStream();
  cudaMemPool_t pool = nullptr;
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, 0};
  REQUIRE(cudaMemPoolCreate(&pool, &properties) == cudaSuccess);
  uint64_t keep = UINT64_MAX;
  REQUIRE(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep) == cudaSuccess);
  void* memory = nullptr;
  REQUIRE(cudaMallocFromPoolAsync(&memory, 4 << 20, pool, stream) == cudaSuccess);
  REQUIRE(cudaFreeAsync(memory, stream) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  uint64_t reserved = 0;
  uint64_t used = 1;
  REQUIRE(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved) ==
          cudaSuccess);
  REQUIRE(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used) == cudaSuccess);
  CHECK(reserved >= 4 << 20);
  CHECK(used == 0);
  REQUIRE(cudaMemPoolTrimTo(pool, 0) == cudaSuccess);
  REQUIRE(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved) ==
          cudaSuccess);
  CHECK(reserved == 0);
  REQUIRE(cudaMemPoolDestroy(pool) == cudaSuccess);
}

TEST_CASE("a device's pool serves other devices that got access", "[simcuda][runtime]") {
  const RuntimeMachine machine(TwoDevices());
  cudaMemPool_t pool = nullptr;
  REQUIRE(cudaDeviceGetDefaultMemPool(&pool, 0) == cudaSuccess);
  cudaMemPool_t current = nullptr;
  REQUIRE(cudaDeviceGetMemPool(&current, 0) == cudaSuccess);
  CHECK(current == pool);
  cudaMemLocation other = {cudaMemLocationTypeDevice, 1};
  cudaMemAccessFlags flags = cudaMemAccessFlagsProtReadWrite;
  REQUIRE(cudaMemPoolGetAccess(&flags, pool, &other) == cudaSuccess);
  CHECK(flags == cudaMemAccessFlagsProtNone);
  const cudaMemAccessDesc access = {other, cudaMemAccessFlagsProtReadWrite};
  REQUIRE(cudaMemPoolSetAccess(pool, &access, 1) == cudaSuccess);
  REQUIRE(cudaMemPoolGetAccess(&flags, pool, &other) == cudaSuccess);
  CHECK(flags == cudaMemAccessFlagsProtReadWrite);
  CHECK(cudaMallocAsync(nullptr, 512, nullptr) == cudaErrorInvalidValue);
}

TEST_CASE("peer access is switched once", "[simcuda][runtime]") {
  const RuntimeMachine machine(TwoDevices());
  int can = 0;
  REQUIRE(cudaDeviceCanAccessPeer(&can, 0, 1) == cudaSuccess);
  CHECK(can == 1);
  CHECK(cudaDeviceEnablePeerAccess(1, 0) == cudaSuccess);
  CHECK(cudaDeviceEnablePeerAccess(1, 0) == cudaErrorPeerAccessAlreadyEnabled);
  CHECK(cudaDeviceDisablePeerAccess(1) == cudaSuccess);
  CHECK(cudaDeviceDisablePeerAccess(1) == cudaErrorPeerAccessNotEnabled);
}

TEST_CASE("after a reset of the simulator the face begins anew", "[simcuda][runtime]") {
  const RuntimeMachine machine(TwoDevices());
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  NewRuntimeMemory();
  Reset();
  int device = -1;
  REQUIRE(cudaGetDevice(&device) == cudaSuccess);
  CHECK(device == 0);
  NewRuntimeMemory();
  CHECK(CallCount("cuInit") == 1);
}

}  // namespace
}  // namespace weir::sim
