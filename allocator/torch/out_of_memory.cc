// What is told when a request fails: PyTorch's observers, its history, and the exception's text.
#include <c10/cuda/CUDAGuard.h>

#include "torch_allocator.h"
#include "weir/weir.h"

namespace weir::torch_plugin {

using c10::CachingAllocator::format_size;

void TorchAllocator::ThrowFailure(size_t bytes, DeviceIndex device, cudaStream_t stream) {
  if (weir_last_status() == WEIR_ERROR_OUT_OF_MEMORY) ThrowOutOfMemory(bytes, device, stream);
  TORCH_CHECK(false, "Weir could not allocate ", format_size(bytes), " on GPU ",
              static_cast<int>(device), ": ", weir_last_error());
}

void TorchAllocator::ThrowOutOfMemory(size_t bytes, DeviceIndex device, cudaStream_t stream) {
  const std::string reasons = weir_last_error();  // before another call of Weir replaces it
  size_t device_free = 0, device_total = 0;
  {
    const c10::cuda::CUDAGuard guard(device);
    C10_CUDA_CHECK(cudaMemGetInfo(&device_free, &device_total));
  }
  weir_stats_t stats{};
  weir_get_stats(device, &stats);
  const bool limited = stats.memory_limit != UINT64_MAX;

  const MemoryHistory::Scope scope(&history_, RecordContext::STATE);
  history_.OnOutOfMemory(device_free, bytes, device, stream, scope.context());
  c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(bytes), stats.allocated_bytes,
                                   stats.reserved_bytes,
                                   c10::Device(c10::DeviceType::CUDA, device));
  std::vector<OutOfMemoryObserver> observers;
  {
    const std::lock_guard lock(mu_);
    observers = oom_observers_;
  }
  for (const OutOfMemoryObserver& observer : observers) {
    observer(device, bytes, limited ? stats.memory_limit : device_total, device_free);
  }

  // PyTorch's words, so that programs that read them find what they look for, then Weir's reasons.
  TORCH_CHECK_WITH(
      OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", format_size(bytes),
      ". GPU ", static_cast<int>(device), " has a total capacity of ", format_size(device_total),
      " of which ", format_size(device_free), " is free. ",
      limited ? format_size(stats.memory_limit) + " allowed; " : std::string(),
      "Of the allocated memory ", format_size(stats.allocated_bytes),
      " is allocated by PyTorch, and ", format_size(stats.reserved_bytes - stats.allocated_bytes),
      " is reserved by PyTorch but unallocated. Weir: ", reasons);
}

void TorchAllocator::attachOutOfMemoryObserver(OutOfMemoryObserver observer) {
  const std::lock_guard lock(mu_);
  oom_observers_.push_back(std::move(observer));
}

}  // namespace weir::torch_plugin
