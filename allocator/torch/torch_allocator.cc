#include "torch_allocator.h"

#include <ATen/Context.h>
#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <pthread.h>

#include "settings.h"
#include "weir/inspect.h"
#include "weir/share.h"
#include "weir/weir.h"

namespace weir::torch_plugin {
namespace {

constexpr size_t kExaByte = size_t{1} << 60;

// In a child of a process that used Weir: inherited blocks are its parent's, and so are the locks.
std::atomic<bool> is_forked{false};

DeviceIndex CurrentDevice() {
  DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  return device;
}

// Whether somebody follows each allocation: PyTorch's profilers, or a tracer of GPU memory.
bool IsObserved() {
  return c10::memoryProfilingEnabled() || c10::impl::GPUTrace::get_trace() != nullptr;
}

// Memory that was asked for while the allocator was switched off: straight from the driver.
class Uncached {
 public:
  static Uncached& Get() {
    static auto* const uncached = new Uncached();
    return *uncached;
  }
  void* Allocate(size_t bytes) {
    void* ptr = nullptr;
    if (bytes == 0) return ptr;
    C10_CUDA_CHECK(cudaMalloc(&ptr, bytes));
    const std::lock_guard lock(mu_);
    live_.insert(ptr);
    return ptr;
  }
  // False if it is none of these.
  bool Free(void* ptr) {
    {
      const std::lock_guard lock(mu_);
      if (live_.erase(ptr) == 0) return false;
    }
    if (const auto* interpreter = c10::impl::GPUTrace::get_trace()) {
      (*interpreter)->trace_gpu_memory_deallocation(c10::kCUDA, reinterpret_cast<uintptr_t>(ptr));
    }
    C10_CUDA_CHECK(cudaFree(ptr));
    return true;
  }

 private:
  std::mutex mu_;
  std::unordered_set<void*> live_;
};

void DeleteUncached(void* ptr) {
  if (ptr != nullptr) Uncached::Get().Free(ptr);
}

// PyTorch's registered ways to free memory, such as collecting what other processes have let go.
size_t AskPyTorchToFree(int device, size_t, void*) {
  const auto active = [device] {
    weir_stats_t stats{};
    weir_get_stats(device, &stats);
    return stats.active_bytes;
  };
  const uint64_t before = active();
  try {
    for (const std::string& name : c10::FreeCudaMemoryCallbacksRegistry()->Keys()) {
      c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute();
    }
  } catch (const std::exception&) {
    // The request fails, or not, for its own reasons.
  }
  const uint64_t after = active();
  return before > after ? before - after : 0;
}

}  // namespace

TorchAllocator& TorchAllocator::Get() {
  static auto* const allocator = new TorchAllocator();
  return *allocator;
}

void DeleteBlock(void* ptr) { TorchAllocator::Get().raw_delete(ptr); }

// ---- Allocation ---------------------------------------------------------------------------------

void* TorchAllocator::Allocate(size_t bytes, DeviceIndex device, cudaStream_t stream) {
  if (!history_.is_watching() && !IsObserved() && !rounds_sizes.load(std::memory_order_relaxed))
      [[likely]] {
    void* ptr = weir_malloc_async_device(bytes, device, stream);
    if (ptr != nullptr) [[likely]]
      return ptr;
    ThrowFailure(bytes, device, stream);
  }
  return AllocateSlow(bytes, device, stream);
}

void* TorchAllocator::AllocateSlow(size_t bytes, DeviceIndex device, cudaStream_t stream) {
  const MemoryHistory::Scope scope(&history_, RecordContext::STATE);
  const size_t padded = RoundAsConfigured(bytes);
  void* ptr = weir_malloc_padded_async_device(bytes, padded, device, stream);
  if (ptr == nullptr) ThrowFailure(bytes, device, stream);
  const MempoolId_t pool = history_.is_watching() ? pools_.IdOfBlock(ptr) : MempoolId_t{0, 0};
  history_.OnAlloc(ptr, bytes, device, stream, pool, scope.context());
  if (const auto* interpreter = c10::impl::GPUTrace::get_trace()) {
    (*interpreter)->trace_gpu_memory_allocation(c10::kCUDA, reinterpret_cast<uintptr_t>(ptr));
  }
  TellProfilers(ptr, static_cast<int64_t>(weir_usable_size(ptr)), device);
  return ptr;
}

c10::DataPtr TorchAllocator::allocate(size_t bytes) {
  TORCH_CHECK_WITH(OutOfMemoryError, bytes < kExaByte,
                   "CUDA out of memory. Tried to allocate more than 1EB memory.");
  const DeviceIndex device = CurrentDevice();
  const c10::Device where(c10::DeviceType::CUDA, device);
  if (!isEnabled()) {
    void* ptr = Uncached::Get().Allocate(bytes);
    return {ptr, ptr, &DeleteUncached, where};
  }
  void* ptr = nullptr;
  if (bytes != 0) ptr = Allocate(bytes, device, c10::cuda::getCurrentCUDAStream(device));
  return {ptr, ptr, &DeleteBlock, where};
}

c10::DeleterFnPtr TorchAllocator::raw_deleter() const {
  return isEnabled() ? &DeleteBlock : &DeleteUncached;
}

void* TorchAllocator::raw_alloc(size_t bytes) {
  if (bytes == 0) return nullptr;
  if (!isEnabled()) return Uncached::Get().Allocate(bytes);
  const DeviceIndex device = CurrentDevice();
  return Allocate(bytes, device, c10::cuda::getCurrentCUDAStream(device));
}

void* TorchAllocator::raw_alloc_with_stream(size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return nullptr;
  if (!isEnabled()) return Uncached::Get().Allocate(bytes);
  return Allocate(bytes, CurrentDevice(), stream);
}

// ---- Freeing ------------------------------------------------------------------------------------

void TorchAllocator::raw_delete(void* ptr) {
  if (!history_.is_watching() && !sharing_.has_exports() && !IsObserved()) [[likely]] {
    if (weir_free_ordered(ptr) == WEIR_OK) [[likely]]
      return;
    const std::string reason = weir_last_error();
    TORCH_CHECK(Uncached::Get().Free(ptr), "invalid device pointer: ", ptr, " (", reason, ")");
    return;
  }
  FreeSlow(ptr);
}

void TorchAllocator::FreeSlow(void* ptr) {
  if (ptr == nullptr || is_forked.load(std::memory_order_relaxed)) return;
  weir_block_info_t block{};
  weir_segment_info_t segment{};
  const bool found = weir_find_block(ptr, &block, &segment) == WEIR_OK &&
                     block.address == reinterpret_cast<uintptr_t>(ptr) &&
                     block.state == WEIR_BLOCK_ALLOCATED;
  if (!found && Uncached::Get().Free(ptr)) return;
  TORCH_CHECK(found, "invalid device pointer: ", ptr);
  const auto device = static_cast<DeviceIndex>(segment.device);
  sharing_.OnFree(ptr);
  if (const auto* interpreter = c10::impl::GPUTrace::get_trace()) {
    (*interpreter)->trace_gpu_memory_deallocation(c10::kCUDA, reinterpret_cast<uintptr_t>(ptr));
  }
  const MemoryHistory::Scope scope(&history_, RecordContext::ALL);
  history_.OnFreeRequested(block, device, pools_.IdOf(segment.pool), scope.context());
  const int status = weir_free_ordered(ptr);
  TORCH_CHECK(status == WEIR_OK, "invalid device pointer: ", ptr, " (", weir_last_error(), ")");
  history_.OnFreed(ptr);
  TellProfilers(ptr, -static_cast<int64_t>(block.bytes), device);
}

void TorchAllocator::TellProfilers(void* ptr, int64_t bytes, DeviceIndex device) {
  if (!c10::memoryProfilingEnabled()) return;
  weir_stats_t stats{};
  weir_get_stats(device, &stats);
  c10::reportMemoryUsageToProfiler(ptr, bytes, stats.allocated_bytes, stats.reserved_bytes,
                                   c10::Device(c10::DeviceType::CUDA, device));
}

void TorchAllocator::recordStream(const c10::DataPtr& data, CUDAStream stream) {
  // Memory of another process is kept by the reference count that it is shared with.
  if (data.get() == nullptr || data.get_deleter() != &DeleteBlock) return;
  const int status = weir_record_use(data.get(), stream.stream());
  TORCH_CHECK(status == WEIR_OK, "record_stream: ", weir_last_error());
}

// ---- Devices and settings -----------------------------------------------------------------------

void TorchAllocator::init(int device_count) {
  const size_t had = devices_.size();
  if (had >= static_cast<size_t>(device_count)) return;
  if (had == 0) {
    TORCH_CHECK(weir_add_memory_callback(&AskPyTorchToFree, nullptr) == WEIR_OK, weir_last_error());
    pthread_atfork(nullptr, nullptr, [] { is_forked.store(true, std::memory_order_relaxed); });
  }
  devices_.resize(static_cast<size_t>(device_count));
  const double fraction = CUDAAllocatorConfig::per_process_memory_fraction();
  if (fraction >= 1) return;
  for (size_t device = had; device < devices_.size(); ++device) {
    setMemoryFraction(fraction, static_cast<DeviceIndex>(device));
  }
}

void TorchAllocator::CheckDevice(DeviceIndex device) const {
  TORCH_CHECK(device >= 0 && static_cast<size_t>(device) < devices_.size(),
              "Invalid device argument ", static_cast<int>(device), ": did you call init?");
}

double TorchAllocator::getMemoryFraction(DeviceIndex device) {
  CheckDevice(device);
  const std::lock_guard lock(mu_);
  return devices_[static_cast<size_t>(device)].fraction;
}

void TorchAllocator::setMemoryFraction(double fraction, DeviceIndex device) {
  CheckDevice(device);
  TORCH_CHECK(fraction >= 0 && fraction <= 1, "invalid fraction: ", fraction,
              ". It must lie between 0 and 1.");
  const int status =
      fraction > 0 ? weir_set_memory_fraction(device, fraction) : weir_set_memory_limit(device, 0);
  TORCH_CHECK(status == WEIR_OK, weir_last_error());
  const std::lock_guard lock(mu_);
  devices_[static_cast<size_t>(device)].fraction = fraction;
}

void TorchAllocator::emptyCache(MempoolId_t id) {
  const MemoryHistory::Scope scope(&history_, RecordContext::ALL);
  for (size_t device = 0; device < devices_.size(); ++device) {
    const auto index = static_cast<DeviceIndex>(device);
    if (id != MempoolId_t{0, 0}) {
      pools_.Empty(index, id);
      continue;
    }
    {
      const std::lock_guard lock(mu_);
      ++devices_[device].emptied;
    }
    TORCH_CHECK(weir_empty_cache(index) == WEIR_OK, weir_last_error());
  }
}

void TorchAllocator::enablePeerAccess(DeviceIndex device, DeviceIndex device_to_access) {
  {
    const c10::cuda::CUDAGuard guard(device);
    const cudaError_t status = cudaDeviceEnablePeerAccess(device_to_access, 0);
    if (status == cudaErrorPeerAccessAlreadyEnabled) {
      (void)cudaGetLastError();
    } else {
      C10_CUDA_CHECK(status);
    }
  }
  TORCH_CHECK(weir_enable_peer_access(device_to_access, device) == WEIR_OK, weir_last_error());
}

cudaError_t TorchAllocator::memcpyAsync(void* dst, int dst_device, const void* src, int src_device,
                                        size_t count, cudaStream_t stream, bool p2p_enabled) {
  if (p2p_enabled || dst_device == src_device) {
    return cudaMemcpyAsync(dst, src, count, cudaMemcpyDeviceToDevice, stream);
  }
  // Mapped memory that the other device has no access to: only the peer copy reaches it.
  return cudaMemcpyPeerAsync(dst, dst_device, src, src_device, count, stream);
}

void TorchAllocator::copy_data(void* dest, const void* src, size_t count) const {
  C10_CUDA_CHECK(cudaMemcpy(dest, src, count, cudaMemcpyDeviceToDevice));
}

// PyTorch compares the name with the key `backend` of its settings whenever they are read.
std::string TorchAllocator::name() { return NamesBackend() ? "native" : "weir"; }

}  // namespace weir::torch_plugin
