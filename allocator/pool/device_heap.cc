// DeviceHeap: the hit path and the bookkeeping of frees. No driver call under the heap lock.
#include "allocator/pool/device_heap.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <new>

#include "absl/strings/str_cat.h"
#include "allocator/base/check.h"

namespace weir {
namespace {

// How many there are while the program uses one stream: it, and the one for memory of any stream.
constexpr size_t kStreamsOfOne = 2;

// Room for the arenas of some hundred streams, also where the device is small.
#if defined(__SANITIZE_THREAD__)
constexpr uint64_t kLeastAddressChunks = 64;  // its shadow leaves less room
#else
constexpr uint64_t kLeastAddressChunks = 1024;
#endif

// A request that a thread's cache serves leaves no trace in the heap.
HeapOptions WithoutContradictions(HeapOptions options) {
  if (options.record_stacks > 0 && options.record_stacks <= ThreadCache::kMaxBytes)
    options.thread_cache_bytes = 0;
  return options;
}

}  // namespace

DeviceHeap::DeviceHeap(std::unique_ptr<DeviceDriver> driver, const HeapOptions& options)
    : HeapCounts(std::move(driver), WithoutContradictions(options)) {
  stats_.memory_limit = options.memory_limit;
}

std::unique_ptr<DeviceHeap> DeviceHeap::Create(std::unique_ptr<DeviceDriver> driver,
                                               const HeapOptions& options, HeapError* error) {
  std::unique_ptr<DeviceHeap> heap(new DeviceHeap(std::move(driver), options));
  const DeviceDriver& d = *heap->driver_;
  heap->granule_ = PointerIndex::kGranule;
  if (d.has_vmm()) {
    MutexLock space(heap->space_mu_);
    heap->granule_ = std::max(PointerIndex::kGranule, d.granularity());
    // Every arena takes at least one chunk, so a small device needs room for many of them too.
    const uint64_t least = std::max(d.total_bytes(), kLeastAddressChunks * AddressSpace::kChunk);
    const DriverStatus status = heap->addresses_.Reserve(
        d, std::max(least, d.total_bytes() * options.address_space_factor), d.total_bytes());
    if (!status.ok()) {
      *error = heap->DriverFailure(status);
      return nullptr;
    }
    heap->reservation_begin_ = heap->addresses_.begin();
    heap->reservation_bytes_ = heap->addresses_.bytes();
  }
  if (heap->StreamFor({kAnyStream}, error) == nullptr) return nullptr;
  if (options.preallocate > 0) {
    if (*error = heap->Preallocate(options.preallocate); !error->ok()) {
      *error = HeapError(error->code, absl::StrCat("option 'preallocate': ", error->text));
      return nullptr;
    }
  }
  return heap;
}

DeviceHeap::~DeviceHeap() {
  MutexLock lock(heap_mu_);
  UnbindCaches(nullptr);
  PointerIndex& index = PointerIndex::Get();
  for (const auto& stream : streams_) {
    for (const Arena* arena : {&stream->small, &stream->large}) {
      arena->ForEachBlock([&](const Block& b) {
        if (b.span != nullptr) index.ClearSpan(&b);
        if (index.Find(b.begin) == &b) index.ClearBlock(b.begin);
      });
    }
  }
  for (const Handle* h : handles_.all()) {
    if (h->id == 0) continue;
    for (const Mapping* m = h->mappings; m != nullptr; m = m->next) {
      index.SetMapping(nullptr, m->at, m->bytes);
    }
  }
}

// ---- Allocation ---------------------------------------------------------------------------------

uint64_t DeviceHeap::Allocate(uint64_t bytes, uint64_t alignment, Stream stream, HeapError* error,
                              uint64_t padded) {
  padded = std::max(padded, bytes);
  StreamKey key = KeyOf(stream);
  if (const uint64_t total = driver_->total_bytes(); padded > total) {
    Ladder nothing_tried;
    nothing_tried.missing = AlignUp(padded - total, granule_);
    *error = OutOfMemory(key, {bytes, alignment, -1, padded}, nothing_tried);
    return 0;
  }
  // A cache takes what was asked for the size of the object.
  const bool is_cached =
      bytes <= ThreadCache::kMaxBytes && alignment <= kBlockAlignment && padded == bytes;
  if (is_cached) {
    ThreadCache* cache = ThreadCaches::Find(this, key.stream);
    const uint64_t address =
        cache != nullptr ? cache->TryAllocate(bytes, key.stream, driver_->ordinal()) : 0;
    if (address != 0) return address;
  }
  if (has_routes_.load(std::memory_order_relaxed)) key.pool = PoolOf(stream);
  Request request = MakeRequest(bytes, padded, alignment, key.pool != 0);
  uint64_t address = 0;
  {
    MutexLock lock(heap_mu_);
    if (StreamHeap* owner = FindStream(key)) {
      NoteContext(owner, &request);
      ThreadCache* cache = is_cached ? CacheOf(owner) : nullptr;
      address = cache != nullptr ? AllocateThrough(cache, request) : TryAllocate(owner, request);
    }
  }
  if (address == 0) address = AllocateMiss(key, request, error);
  if (address != 0 && options_.record_stacks > 0) RecordStack(address, bytes);
  return address;
}

uint64_t DeviceHeap::TryAllocate(StreamHeap* owner, const Request& request) {
  if (request.size_class >= 0 && owner->no_split()) {
    return TryAllocate(owner, MakeBlockRequest(request.bytes, kBlockAlignment));
  }
  if (request.size_class >= 0) {
    if (const uint64_t address = TakeObject(owner, request)) return address;
    owner->spans.Reserve();  // before anything changes: Finish must not fail
  }
  Arena& arena = owner->ArenaFor(request.block);
  Block* block = nullptr;
  if (request.context.valid) {
    arena.FlushKept();
    owner->replay->Find(request.context, [&](uint64_t address) {
      if (IsAligned(address, request.alignment))
        block = arena.TryAllocateAt(address, request.block);
      return block != nullptr;
    });
  }
  if (block == nullptr) block = arena.TryAllocate(request.block, request.alignment);
  return block != nullptr ? Finish(owner, request, block) : 0;
}

void DeviceHeap::NoteContext(StreamHeap* owner, Request* request) {
  if (owner->replay == nullptr || request->block <= kMaxSmallArenaBytes || request->context.valid)
    return;
  ++records_.clock;
  request->context = owner->replay->Next(request->block);
}

uint64_t DeviceHeap::TakeObject(StreamHeap* owner, const Request& request) {
  const SmallObject object = owner->spans.TryTake(request.size_class);
  if (object.address == 0) return 0;
  const uint64_t bytes = SizeOfClass(request.size_class);
  object.held->store(static_cast<uint16_t>(bytes - request.bytes));
  CountAllocation(OwnCache(), request.bytes, bytes, /*is_large=*/false);
  return object.address;
}

uint64_t DeviceHeap::Finish(StreamHeap* owner, const Request& request, Block* block) {
  if (request.size_class >= 0) {
    owner->spans.AddSpan(block, request.size_class);
    return TakeObject(owner, request);
  }
  block->requested.store(request.bytes);
  block->tag.store(Tags::current());
  CountAllocation(OwnCache(), request.bytes, block->bytes, IsLarge(*block));
  if (block->arena == &owner->large) {
    policy_.OnLargeRequest(stats_.active_bytes);
    if (request.context.valid) owner->replay->Remember(request.context, block->begin);
  }
  return block->begin;
}

// ---- Free ---------------------------------------------------------------------------------------

Found DeviceHeap::Find(uint64_t address) {
  Block* block = PointerIndex::Get().Find(address);
  Found found;
  if (block != nullptr && block->span != nullptr) {
    if (SpanLists::ObjectAt(*block->span, address, &found.object) &&
        block->span->held[found.object].load() != Span::kNotHeld) {
      found.block = block;
    }
  } else if (block != nullptr && block->begin == address &&
             block->requested.load() != Block::kNotHeld) {
    found.block = block;
  }
  return found;
}

HeapError DeviceHeap::ExplainNotFound(uint64_t address) {
  const auto fail = [&](weir_status_t code, const char* what) {
    return HeapError(code, absl::StrCat("0x", absl::Hex(address), " ", what));
  };
  const Block* block = nullptr;
  for (const auto& stream : streams_) {
    if (block == nullptr) block = stream->small.FindContaining(address);
    if (block == nullptr) block = stream->large.FindContaining(address);
  }
  if (block == nullptr || block->state == BlockState::kHole)
    return fail(WEIR_ERROR_NOT_OWNED, "was not allocated by Weir");
  if (block->state != BlockState::kLive) return fail(WEIR_ERROR_DOUBLE_FREE, "was freed before");
  uint32_t object = 0;
  if (block->span != nullptr && SpanLists::ObjectAt(*block->span, address, &object))
    return fail(WEIR_ERROR_DOUBLE_FREE, "was freed before, or never handed out");
  if (block->span == nullptr && block->begin == address)
    return fail(WEIR_ERROR_DOUBLE_FREE, "was freed before");
  return fail(WEIR_ERROR_NOT_OWNED,
              "points into a block, not to its begin: pass what was returned");
}

HeapError DeviceHeap::FreeAsync(uint64_t address, Stream stream) {
  const StreamKey key = KeyOf(stream);
  Block* block = PointerIndex::Get().Find(address);
  const bool is_cached = block != nullptr && block->bytes <= ThreadCache::kMaxBytes;
  if (is_cached) {
    ThreadCache* cache = ThreadCaches::Find(this, key.stream);
    if (cache != nullptr && cache->TryFree(block, address, key.stream)) return {};
  }
  StreamHeap* user = nullptr;
  bool record_marker = false;
  {
    MutexLock lock(heap_mu_);
    const Found found = Find(address);
    if (found.block == nullptr) return ExplainNotFound(address);
    StreamHeap* owner = found.block->owner;
    user = owner->IsStream(key) ? owner : FindStream(key);
    if (user != nullptr) FreeHeld(found, address, user, &record_marker);
  }
  if (user == nullptr) {  // a stream seen first
    HeapError error;
    return StreamFor(key, &error) != nullptr ? FreeAsync(address, stream) : error;
  }
  if (record_marker) TryCompleteDeferred();
  return {};
}

HeapError DeviceHeap::FreeOrdered(uint64_t address) {
  bool record_marker = false;
  {
    MutexLock lock(heap_mu_);
    const Found found = Find(address);
    if (found.block == nullptr) return ExplainNotFound(address);
    FreeHeld(found, address, found.block->owner, &record_marker);
  }
  if (record_marker) TryCompleteDeferred();
  return {};
}

void DeviceHeap::FreeHeld(const Found& found, uint64_t address, StreamHeap* user,
                          bool* record_marker) {
  // Another thread's default stream has caches in that thread only.
  const bool may_cache = user == found.block->owner &&
                         found.block->bytes <= ThreadCache::kMaxBytes &&
                         (user->key.thread == 0 || user->key.thread == ThreadNumber());
  ThreadCache* cache = may_cache ? CacheOf(user) : nullptr;
  if (cache != nullptr && FreeThrough(cache, found, address)) return;
  // What leaves with its pool is looked at now, or nobody might.
  *record_marker |= found.block->arena->owner()->is_leaving();
  if (!stacks_.empty()) stacks_.erase(address);
  if (user != found.block->owner || user->is_any() || !uses_.empty()) {
    FreeBehind(found, address, user, record_marker);
    return;
  }
  const uint64_t bytes = found.bytes();
  CountFree(OwnCache(), found.requested(), bytes, IsLarge(*found.block));
  found.MarkNotHeld();
  // A marker early on, so that the memory is complete by the time another stream wants it.
  if (found.block->arena == &user->large && streams_.size() > kStreamsOfOne) {
    user->unmarked_bytes += bytes;
    *record_marker |= user->wants_marker(options_.marker_bytes);
  }
  PutBack(found, /*keep=*/true);
}

void DeviceHeap::FreeBehind(const Found& found, uint64_t address, StreamHeap* user,
                            bool* record_marker) {
  Timelines waits;
  if (user != found.block->owner || user->is_any()) waits.push_back(&user->timeline);
  if (const auto uses = uses_.find(address); uses != uses_.end()) {
    for (StreamHeap* use : uses->second) {
      if (use != user) waits.push_back(&use->timeline);
    }
  }
  const uint64_t bytes = found.bytes(), requested = found.requested();
  if (!waits.empty()) DeferBehind(waits, address, bytes, requested);
  uses_.erase(address);  // from here on nothing refuses the free
  found.MarkNotHeld();
  if (waits.empty()) {
    CountFree(OwnCache(), requested, bytes, IsLarge(*found.block));
    PutBack(found, /*keep=*/true);
    return;
  }
  CountDeferred(requested, bytes, IsLarge(*found.block));
  if (Span* span = found.block->span) {
    span->deferred[found.object / 64] |= uint64_t{1} << (found.object % 64);
  } else {
    found.block->state = BlockState::kDeferred;
  }
  for (const StreamTimeline* wait : waits) {
    *record_marker |= wait->unmarked_bytes() >= options_.marker_bytes;
  }
}

void DeviceHeap::DeferBehind(const Timelines& waits, uint64_t address, uint64_t bytes,
                             uint64_t requested) {
  const auto free = std::make_shared<DeferredFree>(
      DeferredFree{address, static_cast<uint32_t>(waits.size()), stats_.deferred_frees, requested});
  size_t done = 0;
  try {
    for (; done < waits.size(); ++done) waits[done]->Defer(free, bytes);
  } catch (const std::bad_alloc&) {
    while (done > 0) waits[--done]->UndoDefer(bytes);
    throw;
  }
}

void DeviceHeap::Release(const Found& found) {
  CountReleased(found.bytes(), IsLarge(*found.block));
  PutBack(found, /*keep=*/false);
}

void DeviceHeap::PutBack(const Found& found, bool keep) {
  Block* block = found.block;
  StreamHeap* owner = block->owner;
  // Memory for any stream becomes free only when all work is complete: nothing is left to wait for.
  const Epoch epoch = owner->is_any() ? 0 : owner->timeline.open();
  if (block->span != nullptr) {
    block = owner->spans.Free(block->span, found.object);
    if (block == nullptr) return;
  }
  if (block->arena->owner() == owner) {
    block->arena->Free(block, epoch, keep);
  } else {
    ReturnBorrowed(block, owner);
  }
}

HeapError DeviceHeap::RecordUse(uint64_t address, Stream stream) {
  HeapError error;
  const StreamKey key = KeyOf(stream);
  StreamHeap* heap = StreamFor(key, &error);
  if (heap == nullptr) return error;
  MutexLock lock(heap_mu_);
  const Found found = Find(address);
  if (found.block == nullptr) return ExplainNotFound(address);
  if (found.block->owner->IsStream(key)) return {};
  StreamList& uses = uses_[address];
  if (std::find(uses.begin(), uses.end(), heap) == uses.end()) uses.push_back(heap);
  found.MarkUses();
  return {};
}

uint64_t DeviceHeap::UsableSize(uint64_t address) {
  MutexLock lock(heap_mu_);
  const Found found = Find(address);
  return found.block != nullptr ? found.bytes() : 0;
}

}  // namespace weir
