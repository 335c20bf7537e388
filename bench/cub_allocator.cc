// The benchmark program of CUB's CachingDeviceAllocator: bins of powers of 8 from 512 bytes to
// 64 GiB, no bound on what is cached. A block belongs to the stream it was allocated on. The header
// is compiled as plain C++.
#include <cstddef>
#include <cub/util_allocator.cuh>
#include <cub/version.cuh>
#include <limits>

#include "bench/allocator.h"
#include "bench/device.h"

namespace weir::bench {
namespace {

// Left alone at exit: the CUDA runtime may be gone before.
cub::CachingDeviceAllocator& allocator = *new cub::CachingDeviceAllocator(
    8, 3, 12, std::numeric_limits<size_t>::max(), /*skip_cleanup=*/true);
int device_ordinal = 0;

}  // namespace

const AllocatorInfo& Info() {
  static const AllocatorInfo info = [] {
    AllocatorInfo i;
    i.name = "cub";
    i.version = std::to_string(CUB_MAJOR_VERSION) + "." + std::to_string(CUB_MINOR_VERSION) + "." +
                std::to_string(CUB_SUBMINOR_VERSION);
    return i;
  }();
  return info;
}

bool Start(const StartOptions& options, std::string* error) {
  if (!StartDevice(options.simulated, options.device, error)) return false;
  device_ordinal = options.simulated ? 0 : options.device;
  return cudaSetDevice(device_ordinal) == cudaSuccess;
}

void StartThread() {
  MakeDeviceCurrent();
  cudaSetDevice(device_ordinal);
}

Stream CreateStream() { return CreateDriverStream(); }

void* Allocate(size_t bytes, Stream stream) {
  void* pointer = nullptr;
  const cudaError_t result =
      allocator.DeviceAllocate(&pointer, bytes, static_cast<cudaStream_t>(stream));
  return result == cudaSuccess ? pointer : nullptr;
}

void Free(void* pointer, size_t, Stream) { allocator.DeviceFree(pointer); }

void RecordUse(void*, Stream) {}

void FreeOnOther(void* pointer, size_t, Stream, Stream) { allocator.DeviceFree(pointer); }

void Reset() { allocator.FreeAllCached(); }

uint64_t ReservedBytes() {
  uint64_t bytes = 0;
  for (const auto& [device, held] : allocator.cached_bytes) bytes += held.free + held.live;
  return bytes;
}

}  // namespace weir::bench
