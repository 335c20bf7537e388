// build/lib/bench_runtime/libcudart.so.13: a CUDA runtime over the simulated device whose events
// cost nothing; what RMM and CUB are measured on without a GPU.
//
// RMM and CUB record an event with each free. On a real device that is half a microsecond and more;
// what it takes the simulated one is nobody's time. So it is left out, which errs in their favour.
// Memory comes from the simulated device. On a real device the programs load the real runtime, and
// with LD_LIBRARY_PATH=build/lib/simcuda the simulated device's whole one.
//
// Handles and results have the types of the C ABI only: cudaError_t is an int.
#include <cstddef>

#include "tools/simcuda/simcuda.h"

namespace {

constexpr int kSuccess = 0;
constexpr int kErrorMemoryAllocation = 2;

template <typename Function>
Function Find(const char* name, int version) {
  void* address = nullptr;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  simcuda_get_proc_address(name, &address, version, 0, &status);
  return reinterpret_cast<Function>(address);
}

char event;  // the only one

}  // namespace

#define WEIR_RUNTIME extern "C" __attribute__((visibility("default")))

WEIR_RUNTIME int cudaMalloc(void** pointer, size_t bytes) {
  static const auto allocate = Find<decltype(&cuMemAlloc)>("cuMemAlloc", 3020);
  CUdeviceptr address = 0;
  if (allocate(&address, bytes) != CUDA_SUCCESS) return kErrorMemoryAllocation;
  *pointer = reinterpret_cast<void*>(address);
  return kSuccess;
}

WEIR_RUNTIME int cudaFree(void* pointer) {
  static const auto free = Find<decltype(&cuMemFree)>("cuMemFree", 3020);
  return static_cast<int>(free(reinterpret_cast<CUdeviceptr>(pointer)));
}

WEIR_RUNTIME int cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  static const auto info = Find<decltype(&cuMemGetInfo)>("cuMemGetInfo", 3020);
  return static_cast<int>(info(free_bytes, total_bytes));
}

WEIR_RUNTIME int cudaEventCreateWithFlags(void** created, unsigned) {
  *created = &event;
  return kSuccess;
}
WEIR_RUNTIME int cudaEventDestroy(void*) { return kSuccess; }
WEIR_RUNTIME int cudaEventQuery(void*) { return kSuccess; }
WEIR_RUNTIME int cudaEventRecord(void*, void*) { return kSuccess; }
WEIR_RUNTIME int cudaEventSynchronize(void*) { return kSuccess; }
WEIR_RUNTIME int cudaStreamWaitEvent(void*, void*, unsigned) { return kSuccess; }
WEIR_RUNTIME int cudaStreamSynchronize(void*) { return kSuccess; }
WEIR_RUNTIME int cudaDeviceSynchronize() { return kSuccess; }

WEIR_RUNTIME int cudaGetDevice(int* device) {
  *device = 0;
  return kSuccess;
}
WEIR_RUNTIME int cudaSetDevice(int) { return kSuccess; }
WEIR_RUNTIME int cudaGetDeviceCount(int* count) {
  *count = 1;
  return kSuccess;
}

WEIR_RUNTIME int cudaGetLastError() { return kSuccess; }
WEIR_RUNTIME int cudaPeekAtLastError() { return kSuccess; }
WEIR_RUNTIME const char* cudaGetErrorName(int) { return "error"; }
WEIR_RUNTIME const char* cudaGetErrorString(int) { return "error of the idle runtime"; }
