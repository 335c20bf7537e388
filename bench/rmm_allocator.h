// What the programs of RMM's resources share: everything but the resource. Included by one file of
// each program, which defines `Resource` and MakeResource(). RMM is header-only here (wheel
// librmm-cu12 24.12); it throws where there is no memory.
#ifndef WEIR_BENCH_RMM_ALLOCATOR_H_
#define WEIR_BENCH_RMM_ALLOCATOR_H_

#include <atomic>
#include <memory>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/device/cuda_memory_resource.hpp>

#include "bench/allocator.h"
#include "bench/device.h"

namespace weir::bench {

// cudaMalloc and cudaFree, with what is allocated now.
class Upstream : public rmm::mr::device_memory_resource {
 public:
  uint64_t bytes() const { return bytes_; }

 private:
  void* do_allocate(size_t bytes, rmm::cuda_stream_view stream) override {
    void* pointer = cuda_.allocate(bytes, stream);
    bytes_ += bytes;
    return pointer;
  }
  void do_deallocate(void* pointer, size_t bytes, rmm::cuda_stream_view stream) override {
    cuda_.deallocate(pointer, bytes, stream);
    bytes_ -= bytes;
  }

  rmm::mr::cuda_memory_resource cuda_;
  std::atomic<uint64_t> bytes_{0};
};

// Never destroyed: at exit the CUDA runtime may be gone before.
inline Upstream& upstream = *new Upstream;
inline Resource* resource = nullptr;

inline rmm::cuda_stream_view View(Stream stream) {
  return rmm::cuda_stream_view(static_cast<cudaStream_t>(stream));
}

inline AllocatorInfo RmmInfo(const std::string& name) {
  AllocatorInfo info;
  info.name = name;
  info.version = WEIR_BENCH_RMM_VERSION;
  info.free_on_other = true;
  return info;
}

bool Start(const StartOptions& options, std::string* error) {
  if (!StartDevice(options.simulated, options.device, error)) return false;
  cudaSetDevice(options.simulated ? 0 : options.device);
  try {
    resource = MakeResource(&upstream);
  } catch (const std::exception& exception) {
    *error = exception.what();
  }
  return resource != nullptr;
}

void StartThread() { MakeDeviceCurrent(); }

Stream CreateStream() { return CreateDriverStream(); }

void* Allocate(size_t bytes, Stream stream) {
  try {
    return resource->allocate(bytes, View(stream));
  } catch (const std::exception&) {
    return nullptr;
  }
}

void Free(void* pointer, size_t bytes, Stream stream) {
  resource->deallocate(pointer, bytes, View(stream));
}

void RecordUse(void*, Stream) {}

void FreeOnOther(void* pointer, size_t bytes, Stream, Stream other) {
  resource->deallocate(pointer, bytes, View(other));
}

// Neither resource can give back what is fragmented: a new one takes its place.
void Reset() {
  delete resource;
  resource = nullptr;
  resource = MakeResource(&upstream);
}

}  // namespace weir::bench

#endif  // WEIR_BENCH_RMM_ALLOCATOR_H_
