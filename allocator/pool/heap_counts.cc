#include "allocator/pool/heap_counts.h"

#include <algorithm>

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

void HeapCounts::ReclaimRoom(ThreadCache* cache) {
  const ThreadCache::Amounts& room = cache->room;
  AddCurrent(&stats_, {-room.requested, -room.allocated, -room.blocks});
  AddTotals(&stats_, cache->taken);
  cache->room = cache->taken = {};
}

void HeapCounts::ReclaimRooms() {
  const CacheVisit visit(caches_);
  for (ThreadCache* cache : caches_) ReclaimRoom(cache);
}

void HeapCounts::GrantRoom(ThreadCache* cache, uint64_t requested, uint64_t allocated) {
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

void HeapCounts::CountAllocation(ThreadCache* own, uint64_t requested, uint64_t allocated) {
  const ThreadCache::Amounts amounts{static_cast<int64_t>(requested),
                                     static_cast<int64_t>(allocated), 1};
  ThreadCache::Amounts rest = amounts;
  if (own != nullptr) {
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

void HeapCounts::CountFree(ThreadCache* own, uint64_t requested, uint64_t allocated) {
  ThreadCache::Amounts rest{static_cast<int64_t>(requested), static_cast<int64_t>(allocated), 1};
  if (own != nullptr) {
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
