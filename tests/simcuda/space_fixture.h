// The driver functions that the tests about space call, on top of those of time_fixture.h, and the
// usual ways to get mapped memory.
#ifndef WEIR_TESTS_SIMCUDA_SPACE_FIXTURE_H_
#define WEIR_TESTS_SIMCUDA_SPACE_FIXTURE_H_

#include "tests/simcuda/time_fixture.h"

namespace weir::sim {

// name, version
// clang-format off
#define WEIR_SPACE_TEST_FUNCTIONS(F) \
  F(cuDriverGetVersion, 2020) F(cuGetErrorName, 6000) F(cuGetErrorString, 6000) \
  F(cuDeviceGet, 2000) F(cuDeviceGetCount, 2000) F(cuDeviceGetName, 2000) \
  F(cuDeviceGetUuid, 11040) F(cuDeviceGetPCIBusId, 4010) F(cuDeviceTotalMem, 3020) \
  F(cuDeviceCanAccessPeer, 4000) F(cuDevicePrimaryCtxRelease, 11000) \
  F(cuDevicePrimaryCtxGetState, 7000) F(cuDevicePrimaryCtxReset, 11000) \
  F(cuDevicePrimaryCtxSetFlags, 11000) F(cuCtxGetCurrent, 4000) F(cuCtxPushCurrent, 4000) \
  F(cuCtxPopCurrent, 4000) F(cuCtxGetDevice, 2000) F(cuCtxCreate, 3020) \
  F(cuCtxEnablePeerAccess, 4000) F(cuCtxDisablePeerAccess, 4000) F(cuMemAddressFree, 10020) \
  F(cuMemGetAccess, 10020) F(cuMemGetAllocationGranularity, 10020) \
  F(cuMemGetAllocationPropertiesFromHandle, 10020) F(cuMemRetainAllocationHandle, 11000) \
  F(cuMemExportToShareableHandle, 10020) F(cuMemImportFromShareableHandle, 10020) \
  F(cuMemAllocPitch, 3020) F(cuMemAllocManaged, 6000) F(cuMemGetAddressRange, 3020) \
  F(cuPointerGetAttribute, 4000) F(cuPointerGetAttributes, 7000) F(cuPointerSetAttribute, 6000) \
  F(cuIpcGetMemHandle, 4010) F(cuIpcOpenMemHandle, 11000) F(cuIpcCloseMemHandle, 4010) F(cuIpcGetEventHandle, 4010) F(cuIpcOpenEventHandle, 4010) F(cuMemAllocHost, 3020) F(cuMemHostRegister, 6050) \
  F(cuMemHostUnregister, 4000) F(cuMemHostGetDevicePointer, 3020) F(cuMemHostGetFlags, 2030) \
  F(cuMemAllocFromPoolAsync, 11020) F(cuMemPoolCreate, 11020) F(cuMemPoolDestroy, 11020) \
  F(cuMemPoolTrimTo, 11020) F(cuMemPoolSetAttribute, 11020) F(cuMemPoolSetAccess, 11020) \
  F(cuMemPoolGetAccess, 11020) F(cuDeviceGetMemPool, 11020) F(cuDeviceSetMemPool, 11020)
// clang-format on

struct SpaceDriver : Driver {
#define WEIR_DECLARE(name, version) \
  PFN_##name##_v##version name = Resolve<PFN_##name##_v##version>(#name, version);
  WEIR_SPACE_TEST_FUNCTIONS(WEIR_DECLARE)
#undef WEIR_DECLARE
};

inline const SpaceDriver& Gpu() {
  static const SpaceDriver driver;
  return driver;
}

inline constexpr uint64_t kMiB = 1 << 20;
inline constexpr uint64_t kGranule = 2 * kMiB;

inline CUmemAllocationProp DeviceMemory(int device = 0) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  return prop;
}

inline CUmemGenericAllocationHandle NewHandle(uint64_t bytes = kGranule, int device = 0) {
  const CUmemAllocationProp prop = DeviceMemory(device);
  CUmemGenericAllocationHandle handle = 0;
  REQUIRE(Gpu().cuMemCreate(&handle, bytes, &prop, 0) == CUDA_SUCCESS);
  return handle;
}

inline CUdeviceptr NewReservation(uint64_t bytes) {
  CUdeviceptr base = 0;
  REQUIRE(Gpu().cuMemAddressReserve(&base, bytes, 0, 0, 0) == CUDA_SUCCESS);
  return base;
}

inline CUresult Allow(CUdeviceptr at, uint64_t bytes, int device = 0,
                      CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
  CUmemAccessDesc description{};
  description.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  description.flags = flags;
  return Gpu().cuMemSetAccess(at, bytes, &description, 1);
}

inline void MapAt(CUdeviceptr at, uint64_t bytes, CUmemGenericAllocationHandle handle) {
  REQUIRE(Gpu().cuMemMap(at, bytes, 0, handle, 0) == CUDA_SUCCESS);
  REQUIRE(Allow(at, bytes) == CUDA_SUCCESS);
}

inline void FillNow(CUdeviceptr at, uint8_t value, uint64_t bytes) {
  REQUIRE(Gpu().cuMemsetD8(at, value, bytes) == CUDA_SUCCESS);
  REQUIRE(Gpu().cuCtxSynchronize() == CUDA_SUCCESS);
}

// What becomes of a write to the address: the work runs, and its result is the context's.
inline CUresult TryWrite(CUdeviceptr at, uint64_t bytes = 1) {
  const CUresult result = Gpu().cuMemsetD8(at, 1, bytes);
  return result != CUDA_SUCCESS ? result : Gpu().cuCtxSynchronize();
}

inline CUdeviceptr NewAsync(uint64_t bytes, CUstream stream) {
  CUdeviceptr memory = 0;
  REQUIRE(Gpu().cuMemAllocAsync(&memory, bytes, stream) == CUDA_SUCCESS);
  return memory;
}

template <typename T>
T PointerAttribute(CUpointer_attribute attribute, CUdeviceptr address) {
  T value{};
  REQUIRE(Gpu().cuPointerGetAttribute(&value, attribute, address) == CUDA_SUCCESS);
  return value;
}

inline uint64_t FreeBytes() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  REQUIRE(Gpu().cuMemGetInfo(&free_bytes, &total_bytes) == CUDA_SUCCESS);
  return free_bytes;
}

}  // namespace weir::sim

#endif  // WEIR_TESTS_SIMCUDA_SPACE_FIXTURE_H_
