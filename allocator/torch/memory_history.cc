#include "memory_history.h"

#include <c10/cuda/CUDAFunctions.h>

#include <iterator>

#include "torch_allocator.h"
#include "weir/weir.h"

namespace weir::torch_plugin {
namespace {

// The context of the innermost scope of this thread. Changes of mappings are noted with it: they
// happen under locks of Weir, where nothing may be gathered.
thread_local const Context* current_context = nullptr;

void OnRemap(int device, void* address, size_t bytes, int event, void*) {
  TorchAllocator::Get().history().OnSegment(
      event == WEIR_REMAP_AFTER_MAP ? TraceEntry::SEGMENT_MAP : TraceEntry::SEGMENT_UNMAP,
      static_cast<DeviceIndex>(device), reinterpret_cast<uintptr_t>(address), bytes);
}

}  // namespace

MemoryHistory::Scope::Scope(MemoryHistory* history, RecordContext level) : outer_(current_context) {
  if (history->when_.load(std::memory_order_relaxed) < level) return;
  if (const CreateContextFn recorder = history->recorder_.load()) {
    context_ = recorder();
    current_context = &context_;
  }
}

MemoryHistory::Scope::~Scope() { current_context = outer_; }

void MemoryHistory::Configure(bool enabled, CreateContextFn recorder, size_t max_entries,
                              RecordContext when, bool clear,
                              const std::vector<std::string>& skip_actions) {
  std::vector<Ring> old;  // destroyed without the lock, like all that holds contexts
  std::unordered_map<uint64_t, Context> blocks;
  std::map<uint64_t, Context> segments;
  std::map<uint64_t, Pending> pending;
  const std::lock_guard config(config_mu_);
  {
    const std::lock_guard lock(mu_);
    max_entries_ = std::max<size_t>(max_entries, 1);
    skipped_.clear();
    for (const std::string& action : skip_actions) {
      skipped_.insert(c10::CachingDeviceAllocator::parseTraceEntryAction(action));
    }
    if (clear || !enabled) {
      old.swap(rings_);
      annotations_.clear();
    }
    if (!enabled) {
      blocks.swap(blocks_);
      segments.swap(segments_);
      pending.swap(pending_);
    }
    recorder_.store(enabled ? recorder : nullptr);
    when_.store(enabled ? when : RecordContext::NEVER);
    enabled_.store(enabled);
  }
  UpdateWatching();
}

void MemoryHistory::AddTracker(AllocatorTraceTracker tracker, bool only_listens) {
  const std::lock_guard config(config_mu_);
  {
    const std::lock_guard lock(mu_);
    trackers_.push_back(std::move(tracker));
    has_registering_trackers_ |= !only_listens;
  }
  UpdateWatching();
}

void MemoryHistory::UpdateWatching() {
  Told wanted = Told::kNothing;
  {
    const std::lock_guard lock(mu_);
    if (enabled_.load() || !trackers_.empty()) wanted = Told::kAsWatcher;
    if (has_registering_trackers_) wanted = Told::kAsObserver;
  }
  if (wanted != told_) {
    if (told_ == Told::kAsWatcher) weir_unwatch_remap(&OnRemap, nullptr);
    if (told_ == Told::kAsObserver) weir_unobserve_remap(&OnRemap, nullptr);
    told_ = Told::kNothing;
    if (wanted == Told::kAsWatcher) {
      TORCH_CHECK(weir_watch_remap(&OnRemap, nullptr) == WEIR_OK, weir_last_error());
    } else if (wanted == Told::kAsObserver) {
      TORCH_CHECK(weir_observe_remap(&OnRemap, nullptr) == WEIR_OK, weir_last_error());
    }
    told_ = wanted;
  }
  watching_.store(wanted != Told::kNothing);
}

TraceEntry MemoryHistory::MakeEntry(TraceEntry::Action action, DeviceIndex device, uint64_t address,
                                    uint64_t bytes, void* stream, MempoolId_t pool,
                                    const Context& context) {
  const auto& compiling = compile_contexts();
  return TraceEntry(
      action, device, address, bytes, stream, pool, c10::getApproximateTime(),
      when_.load(std::memory_order_relaxed) >= RecordContext::ALLOC ? context : nullptr,
      compiling.empty() ? "N/A" : compiling.back(), user_metadata());
}

void MemoryHistory::Add(const TraceEntry& entry, Trash* trash) {
  for (const AllocatorTraceTracker& tracker : trackers_) tracker(entry);
  if (!enabled_.load() || skipped_.contains(entry.action_)) return;
  const auto device = static_cast<size_t>(entry.device_);
  if (rings_.size() <= device) rings_.resize(device + 1);
  Ring& ring = rings_[device];
  if (ring.entries.size() < max_entries_) {
    ring.entries.push_back(entry);
    return;
  }
  if (ring.next >= ring.entries.size()) ring.next = 0;
  TraceEntry& oldest = ring.entries[ring.next++];
  trash->push_back(std::move(oldest.context_));
  oldest = entry;
}

void MemoryHistory::Complete(std::map<uint64_t, Pending>::iterator pending, Trash* trash) {
  pending->second.entry.action_ = TraceEntry::FREE_COMPLETED;
  pending->second.entry.time_.approx_t_ = c10::getApproximateTime();
  Add(pending->second.entry, trash);
  trash->push_back(std::move(pending->second.entry.context_));
  pending_.erase(pending);
}

void MemoryHistory::CompletePending(uint64_t begin, uint64_t bytes, Trash* trash) {
  auto pending = pending_.lower_bound(begin);
  if (pending != pending_.begin()) {
    const auto before = std::prev(pending);
    if (before->first + before->second.bytes > begin) pending = before;
  }
  while (pending != pending_.end() && pending->first < begin + bytes) {
    Complete(pending++, trash);
  }
}

void MemoryHistory::OnAlloc(void* ptr, size_t bytes, DeviceIndex device, cudaStream_t stream,
                            MempoolId_t pool, const Context& context) {
  if (!is_watching()) return;
  const auto address = reinterpret_cast<uintptr_t>(ptr);
  const TraceEntry entry =
      MakeEntry(TraceEntry::ALLOC, device, address, bytes, stream, pool, context);
  Trash trash;
  const std::lock_guard lock(mu_);
  CompletePending(address, bytes, &trash);
  Add(entry, &trash);
  if (!enabled_.load() || context == nullptr) return;
  Context& kept = blocks_[address];
  trash.push_back(std::exchange(kept, context));
}

void MemoryHistory::OnFreeRequested(const weir_block_info_t& block, DeviceIndex device,
                                    MempoolId_t pool, const Context& context) {
  if (!is_watching()) return;
  TraceEntry entry = MakeEntry(TraceEntry::FREE_REQUESTED, device, block.address,
                               block.requested_bytes, block.stream, pool, context);
  Trash trash;
  const std::lock_guard lock(mu_);
  const auto allocated = blocks_.find(block.address);
  if (allocated != blocks_.end()) {
    if (entry.context_ == nullptr && when_.load() >= RecordContext::ALLOC) {
      entry.context_ = allocated->second;
    }
    trash.push_back(std::move(allocated->second));
    blocks_.erase(allocated);
  }
  CompletePending(block.address, block.bytes, &trash);
  Add(entry, &trash);
  pending_.insert_or_assign(block.address, Pending{block.bytes, std::move(entry)});
}

void MemoryHistory::OnFreed(void* ptr) {
  if (!is_watching()) return;
  weir_block_info_t block{};
  const bool deferred =
      weir_find_block(ptr, &block, nullptr) == WEIR_OK && block.state == WEIR_BLOCK_PENDING;
  if (deferred) return;
  Trash trash;
  const std::lock_guard lock(mu_);
  const auto pending = pending_.find(reinterpret_cast<uintptr_t>(ptr));
  if (pending != pending_.end()) Complete(pending, &trash);
}

void MemoryHistory::OnSegment(TraceEntry::Action action, DeviceIndex device, uint64_t address,
                              uint64_t bytes, MempoolId_t pool) {
  if (!is_watching()) return;
  const Context none;
  const Context& context = current_context != nullptr ? *current_context : none;
  const TraceEntry entry = MakeEntry(action, device, address, bytes, nullptr, pool, context);
  Trash trash;
  const std::lock_guard lock(mu_);
  if (action == TraceEntry::SEGMENT_UNMAP || action == TraceEntry::SEGMENT_FREE) {
    CompletePending(address, bytes, &trash);
    const auto segment = segments_.find(address);
    if (segment != segments_.end()) {
      trash.push_back(std::move(segment->second));
      segments_.erase(segment);
    }
  } else if (enabled_.load() && context != nullptr) {
    trash.push_back(std::exchange(segments_[address], context));
  }
  Add(entry, &trash);
}

void MemoryHistory::OnOutOfMemory(size_t device_free, size_t bytes, DeviceIndex device,
                                  cudaStream_t stream, const Context& context) {
  if (!is_watching()) return;
  const TraceEntry entry =
      MakeEntry(TraceEntry::OOM, device, device_free, bytes, stream, {0, 0}, context);
  Trash trash;
  const std::lock_guard lock(mu_);
  Add(entry, &trash);
}

void MemoryHistory::CompleteFreed() {
  if (!is_watching()) return;
  std::vector<uint64_t> complete;
  {
    const std::lock_guard lock(mu_);
    for (const auto& [address, pending] : pending_) complete.push_back(address);
  }
  std::erase_if(complete, [](uint64_t address) {
    weir_block_info_t block{};
    return weir_find_block(reinterpret_cast<void*>(address), &block, nullptr) == WEIR_OK &&
           block.state == WEIR_BLOCK_PENDING;
  });
  Trash trash;
  const std::lock_guard lock(mu_);
  for (const uint64_t address : complete) {
    const auto pending = pending_.find(address);
    if (pending != pending_.end()) Complete(pending, &trash);
  }
}

void MemoryHistory::OnSnapshot(DeviceIndex device, size_t bytes, MempoolId_t pool,
                               const Context& context) {
  if (!is_watching()) return;
  const TraceEntry entry =
      MakeEntry(TraceEntry::SNAPSHOT, device, 0, bytes, nullptr, pool, context);
  Trash trash;
  const std::lock_guard lock(mu_);
  Add(entry, &trash);
}

namespace {

// Entry is TraceEntry: a template, so that the enumerator need not exist.
template <typename Entry>
bool BecomeAnnotation(Entry& entry) {
  if constexpr (requires { Entry::ANNOTATE; }) {
    entry.action_ = Entry::ANNOTATE;
    return true;
  }
  return false;
}

}  // namespace

void MemoryHistory::OnAnnotate(const weir_block_info_t& block, DeviceIndex device, MempoolId_t pool,
                               const std::string& metadata, const Context& context) {
  if (!is_watching()) return;
  TraceEntry entry = MakeEntry(TraceEntry::ALLOC, device, block.address, block.requested_bytes,
                               block.stream, pool, context);
  entry.user_metadata_ = metadata;
  if (!BecomeAnnotation(entry)) return;
  Trash trash;
  const std::lock_guard lock(mu_);
  Add(entry, &trash);
}

void MemoryHistory::Annotate(DeviceIndex device,
                             const std::vector<std::pair<std::string, std::string>>& data) {
  AnnotationEntry entry(device, c10::getApproximateTime());
  for (const auto& [name, value] : data) entry.recordUserMetadata(name, value);
  const std::lock_guard lock(mu_);
  annotations_.push_back(std::move(entry));
  if (annotations_.size() > max_entries_) annotations_.erase(annotations_.begin());
}

Context MemoryHistory::BlockContext(uint64_t address) {
  const std::lock_guard lock(mu_);
  const auto block = blocks_.find(address);
  return block != blocks_.end() ? block->second : nullptr;
}

Context MemoryHistory::SegmentContext(uint64_t address) {
  const std::lock_guard lock(mu_);
  const auto segment = segments_.find(address);
  return segment != segments_.end() ? segment->second : nullptr;
}

std::vector<TraceEntry> MemoryHistory::Entries(DeviceIndex device) {
  std::vector<TraceEntry> entries;
  {
    const std::lock_guard lock(mu_);
    if (static_cast<size_t>(device) < rings_.size()) {
      const Ring& ring = rings_[static_cast<size_t>(device)];
      const auto oldest = ring.entries.begin() + static_cast<ptrdiff_t>(ring.next);
      entries.insert(entries.end(), oldest, ring.entries.end());
      entries.insert(entries.end(), ring.entries.begin(), oldest);
    }
  }
  const auto to_ns = clock_.makeConverter();
  for (TraceEntry& entry : entries) entry.time_.t_ = to_ns(entry.time_.approx_t_) / 1000;
  return entries;
}

std::vector<AnnotationEntry> MemoryHistory::Annotations() {
  std::vector<AnnotationEntry> annotations;
  {
    const std::lock_guard lock(mu_);
    annotations = annotations_;
  }
  const auto to_ns = clock_.makeConverter();
  for (AnnotationEntry& entry : annotations) entry.time_.t_ = to_ns(entry.time_.approx_t_) / 1000;
  return annotations;
}

std::vector<std::string>& MemoryHistory::compile_contexts() {
  thread_local std::vector<std::string> contexts;
  return contexts;
}

std::string& MemoryHistory::user_metadata() {
  thread_local std::string metadata;
  return metadata;
}

// ---- The allocator's part -----------------------------------------------------------------------

void TorchAllocator::recordHistory(bool enabled, CreateContextFn context_recorder,
                                   size_t max_entries, RecordContext when, bool clear,
                                   const std::vector<std::string>& skip_actions) {
  TORCH_CHECK(when == RecordContext::NEVER || context_recorder != nullptr,
              "recordHistory: there is nothing to record contexts with");
  history_.Configure(enabled, context_recorder, max_entries, when, clear, skip_actions);
}

void TorchAllocator::recordAnnotation(
    const std::vector<std::pair<std::string, std::string>>& metadata) {
  if (!history_.enabled()) return;
  DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  history_.Annotate(device, metadata);
}

void TorchAllocator::pushCompileContext(std::string& metadata) {
  MemoryHistory::compile_contexts().push_back(metadata);
}

void TorchAllocator::popCompileContext() {
  auto& contexts = MemoryHistory::compile_contexts();
  if (!contexts.empty()) contexts.pop_back();
}

void TorchAllocator::annotateMemory(const void* ptr, const std::string& metadata) {
  weir_block_info_t block{};
  weir_segment_info_t segment{};
  TORCH_CHECK(
      weir_find_block(ptr, &block, &segment) == WEIR_OK && block.state == WEIR_BLOCK_ALLOCATED,
      "invalid device pointer: ", ptr);
  const MemoryHistory::Scope scope(&history_, RecordContext::ALL);
  history_.OnAnnotate(block, static_cast<DeviceIndex>(segment.device), pools_.IdOf(segment.pool),
                      metadata, scope.context());
}

void TorchAllocator::setUserMetadata(const std::string& metadata) {
  MemoryHistory::user_metadata() = metadata;
}

std::string TorchAllocator::getUserMetadata() { return MemoryHistory::user_metadata(); }

void TorchAllocator::attachAllocatorTraceTracker(AllocatorTraceTracker tracker) {
  history_.AddTracker(std::move(tracker));
}

}  // namespace weir::torch_plugin
