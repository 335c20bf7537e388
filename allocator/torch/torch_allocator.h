// TorchAllocator: Weir as PyTorch's CUDA allocator.
//
// PyTorch knows its allocator as a CUDAAllocator; this is one, and every method of it works. A
// request costs one call of Weir's C API: what is looked at besides (history, profilers, memory
// shared with other processes) is one word that is 0 most of the time.
//
//   torch_allocator.cc   allocating, freeing, settings, copies
//   out_of_memory.cc     what is told when a request fails
//   memory_stats.cc      statistics in PyTorch's words
//   memory_snapshot.cc   segments and blocks
//   memory_history.*     what happened, with call stacks
//   memory_pools.*       MemPools and the pools of CUDA graphs
//   memory_sharing.*     other processes
//   settings.*           PYTORCH_CUDA_ALLOC_CONF
//   plugin.cc            how it is installed
//
// One build serves the PyTorch versions whose CUDAAllocator looks the same; the Python package sees
// to that (weir/_plugin.py).
#ifndef WEIR_TORCH_TORCH_ALLOCATOR_H_
#define WEIR_TORCH_TORCH_ALLOCATOR_H_

#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "memory_history.h"
#include "memory_pools.h"
#include "memory_sharing.h"
#include "torch_names.h"

namespace weir::torch_plugin {

class TorchAllocator final : public CUDAAllocator {
 public:
  // The one of this process. Never destroyed: tensors may outlive static destructors.
  static TorchAllocator& Get();

  // ---- torch_allocator.cc ----
  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* dest, const void* src, size_t count) const override;
  void* raw_alloc(size_t bytes) override;
  void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override;
  void raw_delete(void* ptr) override;
  void init(int device_count) override;
  bool initialized() override { return !devices_.empty(); }
  double getMemoryFraction(DeviceIndex device) override;
  void setMemoryFraction(double fraction, DeviceIndex device) override;
  void emptyCache(MempoolId_t id = {0, 0}) override;
  void enable(bool value) override { enabled_.store(value, std::memory_order_relaxed); }
  bool isEnabled() const override { return enabled_.load(std::memory_order_relaxed); }
  void recordStream(const c10::DataPtr& data, CUDAStream stream) override;
  void enablePeerAccess(DeviceIndex device, DeviceIndex device_to_access) override;
  cudaError_t memcpyAsync(void* dst, int dst_device, const void* src, int src_device, size_t count,
                          cudaStream_t stream, bool p2p_enabled) override;
  std::string name() override;

  // ---- memory_stats.cc ----
  DeviceStats getDeviceStats(DeviceIndex device) override;
  void resetAccumulatedStats(DeviceIndex device) override;
  void resetPeakStats(DeviceIndex device) override;

  // ---- memory_snapshot.cc ----
  SnapshotInfo snapshot(MempoolId_t id = {0, 0}, bool include_traces = true) override;
  std::vector<StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) override;
  void cacheInfo(DeviceIndex device, size_t* largest) override;
  void* getBaseAllocation(void* ptr, size_t* size) override;

  // ---- memory_pools.cc ----
  void beginAllocateToPool(DeviceIndex device, MempoolId_t id,
                           std::function<bool(cudaStream_t)> filter) override;
  void endAllocateToPool(DeviceIndex device, MempoolId_t id) override;
  void releasePool(DeviceIndex device, MempoolId_t id) override;
  int getPoolUseCount(DeviceIndex device, MempoolId_t id) override;
  void createOrIncrefPool(DeviceIndex device, MempoolId_t id,
                          std::shared_ptr<CUDAAllocator> source = nullptr) override;
  void setUseOnOOM(DeviceIndex device, MempoolId_t id, bool use_on_oom) override;
  void setNoSplit(DeviceIndex device, MempoolId_t id) override;
  bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t id,
                                const std::unordered_set<void*>& expected) override;
  std::shared_ptr<AllocatorState> getCheckpointState(DeviceIndex device, MempoolId_t id) override;
  CheckpointDelta setCheckpointPoolState(DeviceIndex device,
                                         std::shared_ptr<AllocatorState> state) override;

  // ---- memory_sharing.cc ----
  ShareableHandle shareIpcHandle(void* ptr) override;
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override;

  // ---- memory_history.cc ----
  bool isHistoryEnabled() override { return history_.enabled(); }
  void recordHistory(bool enabled, CreateContextFn context_recorder, size_t max_entries,
                     RecordContext when, bool clear,
                     const std::vector<std::string>& skip_actions) override;
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& metadata) override;
  void pushCompileContext(std::string& metadata) override;
  void popCompileContext() override;
  void setUserMetadata(const std::string& metadata) override;
  std::string getUserMetadata() override;
  void attachOutOfMemoryObserver(OutOfMemoryObserver observer) override;
  void attachAllocatorTraceTracker(AllocatorTraceTracker tracker) override;

  // What newer versions of PyTorch added; without `override`, so that one source serves all.
  // Weir asks the driver before it says that memory is missing, so it rejects nothing in advance.
  virtual void attachOomRejectionObserver(OutOfMemoryObserver) {}
  virtual std::shared_ptr<GatheredContext> getContextForPointer(const void* ptr) {
    return history_.BlockContext(reinterpret_cast<uintptr_t>(ptr));
  }
  virtual bool supportsUserMetadata() { return true; }
  virtual void annotateMemory(const void* ptr, const std::string& metadata);

  MemoryHistory& history() { return history_; }

 private:
  struct Device {
    double fraction = 1;
    DeviceStats zero;           // what was counted up to the last resetAccumulatedStats
    DeviceStats segments_seen;  // of segments that are not mapped, see memory_stats.cc
    std::optional<bool> can_map;
    int64_t emptied = 0;  // calls of emptyCache: each waits for all that was freed
  };

  TorchAllocator() = default;

  // The request itself. `Slow`: with history, profilers and so on, and when it failed.
  void* Allocate(size_t bytes, DeviceIndex device, cudaStream_t stream);
  void* AllocateSlow(size_t bytes, DeviceIndex device, cudaStream_t stream);
  void FreeSlow(void* ptr);
  [[noreturn]] void ThrowFailure(size_t bytes, DeviceIndex device, cudaStream_t stream);
  [[noreturn]] void ThrowOutOfMemory(size_t bytes, DeviceIndex device, cudaStream_t stream);
  void TellProfilers(void* ptr, int64_t bytes, DeviceIndex device);
  // Throws unless it is one that init has announced.
  void CheckDevice(DeviceIndex device) const;
  DeviceStats CountDevice(DeviceIndex device) const;  // since the start of the process
  void CountSegments(DeviceIndex device, DeviceStats* stats);
  bool CanMap(DeviceIndex device);

  std::atomic<bool> enabled_{true};
  MemoryHistory history_;
  MemoryPools pools_;
  MemorySharing sharing_;
  std::mutex mu_;  // of what follows
  std::vector<Device> devices_;
  std::vector<OutOfMemoryObserver> oom_observers_;
};

// Frees what the allocator has handed out: the deleter of its tensors.
void DeleteBlock(void* ptr);

}  // namespace weir::torch_plugin

#endif  // WEIR_TORCH_TORCH_ALLOCATOR_H_
