// CUB's CachingDeviceAllocator over a CUDA runtime that does nothing: events cost CUB nothing here,
// so the comparison errs in its favour. The header is compiled as plain C++.
#include <cstdlib>
#include <cub/util_allocator.cuh>
#include <limits>

#include "bench/pair_bench.h"

extern "C" {
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaMalloc(void** p, size_t bytes) {
  *p = std::malloc(bytes);
  return *p != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void* p) {
  std::free(p);
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  static char one;
  *event = reinterpret_cast<cudaEvent_t>(&one);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return ""; }
const char* cudaGetErrorName(cudaError_t) { return ""; }
}

namespace weir::bench {
namespace {

cub::CachingDeviceAllocator& Allocator() {
  // Bins of powers of 8 from 512 bytes to 1 GiB, no bound on what is cached, left alone at exit.
  static auto* const allocator = new cub::CachingDeviceAllocator(
      8, 3, 10, std::numeric_limits<size_t>::max(), /*skip_cleanup=*/true);
  return *allocator;
}

}  // namespace

Pair CubPair() {
  return {[](size_t bytes) -> void* {
            void* p = nullptr;
            return Allocator().DeviceAllocate(&p, bytes, nullptr) == cudaSuccess ? p : nullptr;
          },
          [](void* p) { Allocator().DeviceFree(p); }};
}

}  // namespace weir::bench
