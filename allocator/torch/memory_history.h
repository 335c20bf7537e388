// MemoryHistory: what happened to memory, as torch.cuda.memory._record_memory_history() keeps it,
// and as trace trackers (NCCL's registration of memory, for example) are told it.
//
// While nobody watches it costs one load per call. Contexts (call stacks) are gathered and
// destroyed without a lock, because both may need Python's lock, whose holder may wait for ours.
//
// Order: a free is noted before the memory can be handed out again, an allocation after it was
// made, so an address is never allocated twice without a free between. Weir finds out late that a
// deferred free is complete; it is noted then, and at the latest before the address is handed out
// again.
#ifndef WEIR_TORCH_MEMORY_HISTORY_H_
#define WEIR_TORCH_MEMORY_HISTORY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "torch_names.h"
#include "weir/inspect.h"

namespace weir::torch_plugin {

class MemoryHistory {
 public:
  // Gathers the calling thread's context for what it does to memory while the scope lives, if the
  // settings ask for one at that level.
  class Scope {
   public:
    Scope(MemoryHistory* history, RecordContext level);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    const Context& context() const { return context_; }

   private:
    Context context_;
    const Context* outer_ = nullptr;
  };

  // Whether anybody wants to know. What follows does nothing otherwise.
  bool is_watching() const { return watching_.load(std::memory_order_relaxed); }
  bool enabled() const { return enabled_.load(std::memory_order_relaxed); }

  void Configure(bool enabled, CreateContextFn recorder, size_t max_entries, RecordContext when,
                 bool clear, const std::vector<std::string>& skip_actions);
  // A tracker that registers memory lets go of it when it is told that it is unmapped; one that
  // only listens has Weir go on as if it were not there.
  void AddTracker(AllocatorTraceTracker tracker, bool only_listens = false);
  void OnAlloc(void* ptr, size_t bytes, DeviceIndex device, cudaStream_t stream, MempoolId_t pool,
               const Context& context);
  void OnFreeRequested(const weir_block_info_t& block, DeviceIndex device, MempoolId_t pool,
                       const Context& context);
  // The free has been made: if nothing defers it, it is complete.
  void OnFreed(void* ptr);
  void OnSegment(TraceEntry::Action action, DeviceIndex device, uint64_t address, uint64_t bytes,
                 MempoolId_t pool = {0, 0});
  void OnOutOfMemory(size_t device_free, size_t bytes, DeviceIndex device, cudaStream_t stream,
                     const Context& context);
  // Notes which frees have become complete meanwhile.
  void CompleteFreed();
  void OnSnapshot(DeviceIndex device, size_t bytes, MempoolId_t pool, const Context& context);
  // Of a live block; where PyTorch knows such an entry.
  void OnAnnotate(const weir_block_info_t& block, DeviceIndex device, MempoolId_t pool,
                  const std::string& metadata, const Context& context);
  void Annotate(DeviceIndex device, const std::vector<std::pair<std::string, std::string>>& data);

  // Of the block that was allocated there, and of the memory that was mapped there; null if
  // unknown.
  Context BlockContext(uint64_t address);
  Context SegmentContext(uint64_t address);
  // The newest entries of a device, the oldest first, in microseconds of the Unix epoch.
  std::vector<TraceEntry> Entries(DeviceIndex device);
  std::vector<AnnotationEntry> Annotations();

  // Of the calling thread.
  static std::vector<std::string>& compile_contexts();
  static std::string& user_metadata();

 private:
  struct Ring {
    std::vector<TraceEntry> entries;
    size_t next = 0;
  };
  struct Pending {
    uint64_t bytes;  // of the block
    TraceEntry entry;
  };

  // Contexts that were replaced: destroyed by the caller once it has given up the lock.
  using Trash = std::vector<Context>;

  TraceEntry MakeEntry(TraceEntry::Action action, DeviceIndex device, uint64_t address,
                       uint64_t bytes, void* stream, MempoolId_t pool, const Context& context);
  // Tells trackers and keeps the entry. mu_ held.
  void Add(const TraceEntry& entry, Trash* trash);
  // Notes that what was freed and overlaps the range is complete. mu_ held.
  void CompletePending(uint64_t begin, uint64_t bytes, Trash* trash);
  void Complete(std::map<uint64_t, Pending>::iterator pending, Trash* trash);
  void UpdateWatching();  // config_mu_ held

  std::atomic<bool> watching_{false};
  std::atomic<bool> enabled_{false};
  std::atomic<CreateContextFn> recorder_{nullptr};
  std::atomic<RecordContext> when_{RecordContext::NEVER};
  c10::ApproximateClockToUnixTimeConverter clock_;

  // One change of who is told what at a time; before mu_.
  std::mutex config_mu_;
  enum class Told { kNothing, kAsWatcher, kAsObserver } told_ = Told::kNothing;

  // Taken last of all locks, and not held while Weir or Python is called. Guards the rest.
  std::mutex mu_;
  size_t max_entries_ = 1;
  std::set<TraceEntry::Action> skipped_;
  std::vector<Ring> rings_;  // by device
  std::vector<AnnotationEntry> annotations_;
  std::vector<AllocatorTraceTracker> trackers_;
  bool has_registering_trackers_ = false;
  std::unordered_map<uint64_t, Context> blocks_;
  std::map<uint64_t, Context> segments_;
  std::map<uint64_t, Pending> pending_;  // freed, not known to be complete
};

}  // namespace weir::torch_plugin

#endif  // WEIR_TORCH_MEMORY_HISTORY_H_
