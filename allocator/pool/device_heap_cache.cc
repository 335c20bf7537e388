// DeviceHeap: how thread caches are filled, emptied and counted. All under the heap lock, without a
// driver call.
#include <algorithm>

#include "allocator/base/check.h"
#include "allocator/pool/device_heap.h"
#include "allocator/pool/stats.h"

namespace weir {
namespace {

// What a cache may hand out without asking again, where it raises no peak.
constexpr ThreadCache::Amounts kSpareRoom{kMiB, kMiB, 256};

// Whether the counters plus `more` stay within all peaks.
bool IsWithinPeaks(const weir_stats_t& s, const ThreadCache::Amounts& more) {
  const auto within = [](uint64_t now, int64_t add, uint64_t peak) {
    return static_cast<int64_t>(now) + add <= static_cast<int64_t>(peak);
  };
  return within(s.requested_bytes, more.requested, s.peak_requested_bytes) &&
         within(s.allocated_bytes, more.allocated, s.peak_allocated_bytes) &&
         within(s.active_bytes, more.allocated, s.peak_active_bytes) &&
         within(s.allocations, more.blocks, s.peak_allocations) &&
         within(s.active_blocks, more.blocks, s.peak_active_blocks);
}

// Adds to the current values; unsigned wrap-around makes negative amounts subtract.
void AddCurrent(weir_stats_t* s, const ThreadCache::Amounts& more) {
  s->requested_bytes += static_cast<uint64_t>(more.requested);
  s->allocated_bytes += static_cast<uint64_t>(more.allocated);
  s->active_bytes += static_cast<uint64_t>(more.allocated);
  s->allocations += static_cast<uint64_t>(more.blocks);
  s->active_blocks += static_cast<uint64_t>(more.blocks);
}

void AddTotals(weir_stats_t* s, const ThreadCache::Amounts& more) {
  s->total_requested_bytes += static_cast<uint64_t>(more.requested);
  s->total_allocated_bytes += static_cast<uint64_t>(more.allocated);
  s->total_active_bytes += static_cast<uint64_t>(more.allocated);
  s->total_allocations += static_cast<uint64_t>(more.blocks);
  s->total_active_blocks += static_cast<uint64_t>(more.blocks);
}

void RaisePeaks(weir_stats_t* s) {
  s->peak_requested_bytes = std::max(s->peak_requested_bytes, s->requested_bytes);
  s->peak_allocated_bytes = std::max(s->peak_allocated_bytes, s->allocated_bytes);
  s->peak_active_bytes = std::max(s->peak_active_bytes, s->active_bytes);
  s->peak_allocations = std::max(s->peak_allocations, s->allocations);
  s->peak_active_blocks = std::max(s->peak_active_blocks, s->active_blocks);
}

}  // namespace

// ---- Caches -------------------------------------------------------------------------------------

ThreadCache* DeviceHeap::CacheOf(StreamHeap* owner) {
  if (options_.thread_cache_bytes == 0 || records_.has_lost || owner->is_any() ||
      owner->key.stream == kNoStream || owner->key.pool != 0) {
    return nullptr;
  }
  ThreadCache* cache = ThreadCaches::FindOrMake(this, owner->key.stream);
  if (cache == nullptr || cache->owner() == owner) return cache;
  if (cache->heap() != this) {
    try {
      caches_.push_back(cache);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }
  cache->Bind(this, owner, owner->key.stream, driver_->ordinal(), options_.thread_cache_bytes);
  cache->EnableAllocation(!MayBeRouted(cache->thread()));
  return cache;
}

uint64_t DeviceHeap::AllocateThrough(ThreadCache* cache, const Request& request) {
  if (cache->Has(request.bytes)) {
    GrantRoom(cache, request.bytes,
              request.size_class >= 0 ? SizeOfClass(request.size_class) : request.block);
    return cache->Pop(request.bytes);
  }
  StreamHeap* owner = cache->owner();
  const uint64_t address = TryAllocate(owner, request);
  if (address == 0 || request.size_class < 0) return address;
  // A batch more, for the next ones; half of the space stays for frees.
  for (size_t i = cache->SpaceFor(request.size_class) / 2; i > 0; --i) {
    const SmallObject object = owner->spans.TryTake(request.size_class);
    if (object.address == 0) break;
    cache->AddFree(request.size_class, object);
  }
  return address;
}

bool DeviceHeap::FreeThrough(ThreadCache* cache, const Found& found, uint64_t address) {
  Block* block = found.block;
  if (cache->Push(block, address)) return true;
  // Making space would not help a block with recorded uses, or one larger than the whole cache.
  if (found.has_uses() || found.bytes() > options_.thread_cache_bytes) return false;
  const auto put_back = [this](Block* b, uint64_t at) {
    heap_mu_.AssertHeld();
    Uncache(b, at);
  };
  if (cache->cached_bytes() + SizeOfClass(kNumSizeClasses - 1) > options_.thread_cache_bytes ||
      block->span == nullptr) {
    cache->TakeOut(/*all=*/false, put_back);
  } else {
    cache->TakeOutOf(block->span->size_class, /*all=*/false, put_back);
  }
  // What it may hand out beyond the spare room, others can use.
  ReclaimRoom(cache);
  return cache->Push(block, address);
}

void DeviceHeap::Uncache(Block* block, uint64_t address) {
  Found found{block, 0};
  if (block->span != nullptr) {
    WEIR_CHECK(SpanLists::ObjectAt(*block->span, address, &found.object));
  }
  PutBack(found, /*keep=*/false);
}

uint64_t DeviceHeap::FlushCaches() {
  const CacheVisit visit(caches_);
  uint64_t bytes = 0;
  for (ThreadCache* cache : caches_) {
    bytes += cache->cached_bytes();
    Flush(cache);
  }
  return bytes;
}

void DeviceHeap::Flush(ThreadCache* cache) {
  cache->TakeOut(/*all=*/true, [this](Block* block, uint64_t address) {
    heap_mu_.AssertHeld();
    Uncache(block, address);
  });
  ReclaimRoom(cache);
}

void DeviceHeap::UnbindCaches(const StreamHeap* owner) {
  const CacheVisit visit(caches_);
  for (ThreadCache* cache : caches_) {
    if (owner != nullptr && cache->owner() != owner) continue;
    if (cache->owner() == nullptr) continue;
    Flush(cache);
    cache->Unbind();
  }
  if (owner == nullptr) {
    for (ThreadCache* cache : caches_) cache->set_heap(nullptr);
  }
}

void DeviceHeap::RetireCache(ThreadCache* cache) {
  MutexLock lock(heap_mu_);
  if (cache->owner() != nullptr) {
    Flush(cache);
    cache->Unbind();
  }
  std::erase(caches_, cache);
  cache->set_heap(nullptr);
}

// ---- Counting -----------------------------------------------------------------------------------

void DeviceHeap::ReclaimRoom(ThreadCache* cache) {
  const ThreadCache::Amounts& room = cache->room;
  AddCurrent(&stats_, {-room.requested, -room.allocated, -room.blocks});
  AddTotals(&stats_, cache->taken);
  cache->room = cache->taken = {};
}

void DeviceHeap::ReclaimRooms() {
  const CacheVisit visit(caches_);
  for (ThreadCache* cache : caches_) ReclaimRoom(cache);
}

void DeviceHeap::GrantRoom(ThreadCache* cache, uint64_t requested, uint64_t allocated) {
  ReclaimRoom(cache);
  const ThreadCache::Amounts need{static_cast<int64_t>(requested), static_cast<int64_t>(allocated),
                                  1};
  if (!IsWithinPeaks(stats_, need)) ReclaimRooms();
  const auto grant = [](int64_t least, int64_t spare, uint64_t now, uint64_t peak) {
    const auto below_peak = static_cast<int64_t>(peak) - static_cast<int64_t>(now);
    return std::clamp(below_peak, least, least + spare);
  };
  const auto& s = stats_;
  cache->room = {
      grant(need.requested, kSpareRoom.requested, s.requested_bytes, s.peak_requested_bytes),
      std::min(
          grant(need.allocated, kSpareRoom.allocated, s.allocated_bytes, s.peak_allocated_bytes),
          grant(need.allocated, kSpareRoom.allocated, s.active_bytes, s.peak_active_bytes)),
      std::min(grant(need.blocks, kSpareRoom.blocks, s.allocations, s.peak_allocations),
               grant(need.blocks, kSpareRoom.blocks, s.active_blocks, s.peak_active_blocks))};
  AddCurrent(&stats_, cache->room);
  RaisePeaks(&stats_);
}

ThreadCache* DeviceHeap::OwnCache() {
  ThreadCache* cache = ThreadCaches::last();
  return cache != nullptr && cache->heap() == this && cache->owner() != nullptr ? cache : nullptr;
}

void DeviceHeap::CountAllocation(uint64_t requested, uint64_t allocated) {
  const ThreadCache::Amounts amounts{static_cast<int64_t>(requested),
                                     static_cast<int64_t>(allocated), 1};
  ThreadCache::Amounts rest = amounts;
  if (ThreadCache* own = OwnCache()) {
    const auto take = [](int64_t* room, int64_t* amount) {
      if (*room < *amount) return;
      *room -= *amount;
      *amount = 0;
    };
    take(&own->room.requested, &rest.requested);
    take(&own->room.allocated, &rest.allocated);
    take(&own->room.blocks, &rest.blocks);
  }
  AddTotals(&stats_, amounts);
  if (rest.requested == 0 && rest.allocated == 0 && rest.blocks == 0) return;
  if (IsWithinPeaks(stats_, rest)) {
    AddCurrent(&stats_, rest);
    return;
  }
  ReclaimRooms();
  AddCurrent(&stats_, rest);
  RaisePeaks(&stats_);
}

void DeviceHeap::CountFree(uint64_t requested, uint64_t allocated) {
  ThreadCache::Amounts rest{static_cast<int64_t>(requested), static_cast<int64_t>(allocated), 1};
  if (ThreadCache* own = OwnCache()) {
    const auto give = [](int64_t* room, int64_t* amount, int64_t spare) {
      if (*room + *amount > spare) return;
      *room += *amount;
      *amount = 0;
    };
    give(&own->room.requested, &rest.requested, kSpareRoom.requested);
    give(&own->room.allocated, &rest.allocated, kSpareRoom.allocated);
    give(&own->room.blocks, &rest.blocks, kSpareRoom.blocks);
  }
  AddCurrent(&stats_, {-rest.requested, -rest.allocated, -rest.blocks});
}

}  // namespace weir
