#include "allocator/pool/heap_counts.h"

#include <algorithm>

#include "allocator/pool/stats.h"

namespace weir {
namespace {

// What a cache may hand out without asking again, where it raises no peak.
constexpr ThreadCache::Amounts kSpareRoom{kMiB, kMiB, 256};

// S: weir_stats_t or weir_size_stats_t.

// Whether the counters plus `more` stay within all peaks.
template <typename S>
bool IsWithinPeaks(const S& s, const ThreadCache::Amounts& more) {
  const auto within = [](uint64_t now, int64_t add, uint64_t peak) {
    return static_cast<int64_t>(now) + add <= static_cast<int64_t>(peak);
  };
  return within(s.requested_bytes, more.requested, s.peak_requested_bytes) &&
         within(s.allocated_bytes, more.allocated, s.peak_allocated_bytes) &&
         within(s.active_bytes, more.allocated, s.peak_active_bytes) &&
         within(s.allocations, more.blocks, s.peak_allocations) &&
         within(s.active_blocks, more.blocks, s.peak_active_blocks);
}

// How far the counters lie below their peaks, each the least of what it counts for.
template <typename S>
ThreadCache::Amounts BelowPeaks(const S& s) {
  const auto below = [](uint64_t now, uint64_t peak) {
    return static_cast<int64_t>(peak) - static_cast<int64_t>(now);
  };
  return {below(s.requested_bytes, s.peak_requested_bytes),
          std::min(below(s.allocated_bytes, s.peak_allocated_bytes),
                   below(s.active_bytes, s.peak_active_bytes)),
          std::min(below(s.allocations, s.peak_allocations),
                   below(s.active_blocks, s.peak_active_blocks))};
}

// Adds to the current values; unsigned wrap-around makes negative amounts subtract.
template <typename S>
void AddCurrent(S* s, const ThreadCache::Amounts& more) {
  s->requested_bytes += static_cast<uint64_t>(more.requested);
  s->allocated_bytes += static_cast<uint64_t>(more.allocated);
  s->active_bytes += static_cast<uint64_t>(more.allocated);
  s->allocations += static_cast<uint64_t>(more.blocks);
  s->active_blocks += static_cast<uint64_t>(more.blocks);
}

template <typename S>
void AddTotals(S* s, const ThreadCache::Amounts& more) {
  s->total_requested_bytes += static_cast<uint64_t>(more.requested);
  s->total_allocated_bytes += static_cast<uint64_t>(more.allocated);
  s->total_active_bytes += static_cast<uint64_t>(more.allocated);
  s->total_allocations += static_cast<uint64_t>(more.blocks);
  s->total_active_blocks += static_cast<uint64_t>(more.blocks);
}

// What of these counters one thread's cache may raise.
template <typename S>
void RaisePeaksOf(S* s) {
  s->peak_requested_bytes = std::max(s->peak_requested_bytes, s->requested_bytes);
  s->peak_allocated_bytes = std::max(s->peak_allocated_bytes, s->allocated_bytes);
  s->peak_active_bytes = std::max(s->peak_active_bytes, s->active_bytes);
  s->peak_allocations = std::max(s->peak_allocations, s->allocations);
  s->peak_active_blocks = std::max(s->peak_active_blocks, s->active_blocks);
}

void CopyHeld(const HeldMemory& held, weir_size_stats_t* s) {
  s->reserved_bytes = held.bytes;
  s->peak_reserved_bytes = held.peak_bytes;
  s->total_reserved_bytes = held.total_bytes;
  s->handles = held.handles;
  s->peak_handles = held.peak_handles;
  s->total_handles = held.total_handles;
}

ThreadCache::Amounts Negative(const ThreadCache::Amounts& a) {
  return {-a.requested, -a.allocated, -a.blocks};
}

}  // namespace

const weir_size_stats_t& HeapCounts::Small() {
#define WEIR_SUBTRACT_LARGE(name)          \
  small_.name = stats_.name - large_.name; \
  small_.total_##name = stats_.total_##name - large_.total_##name;
  WEIR_STAT_FIELDS(WEIR_SUBTRACT_LARGE)
#undef WEIR_SUBTRACT_LARGE
  return small_;
}

void HeapCounts::RaisePeaks() {
  RaisePeaksOf(&stats_);
  Small();
  RaisePeaksOf(&small_);
}

void HeapCounts::CountBySize(weir_size_stats_t* small, weir_size_stats_t* large) {
  ReclaimRooms();
  *small = Small();
  *large = large_;
  CopyHeld(records_.held_small, small);
  CopyHeld(records_.held_large, large);
}

void HeapCounts::LowerPeaks() {
  ReclaimRooms();
  Small();
  LowerPeaksOf(&stats_);
  LowerPeaksOf(&small_);
  LowerPeaksOf(&large_);
  records_.held_small.ResetPeaks();
  records_.held_large.ResetPeaks();
}

// ---- Rooms --------------------------------------------------------------------------------------

void HeapCounts::ReclaimRoom(ThreadCache* cache) {
  AddCurrent(&stats_, Negative(cache->room));
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
  if (!IsWithinPeaks(stats_, need) || !IsWithinPeaks(Small(), need)) ReclaimRooms();
  const ThreadCache::Amounts all = BelowPeaks(stats_), small = BelowPeaks(Small());
  const auto grant = [](int64_t least, int64_t spare, int64_t a, int64_t b) {
    return std::clamp(std::min(a, b), least, least + spare);
  };
  cache->room = {grant(need.requested, kSpareRoom.requested, all.requested, small.requested),
                 grant(need.allocated, kSpareRoom.allocated, all.allocated, small.allocated),
                 grant(need.blocks, kSpareRoom.blocks, all.blocks, small.blocks)};
  AddCurrent(&stats_, cache->room);
  RaisePeaks();
}

// ---- Blocks from the heap itself ----------------------------------------------------------------

void HeapCounts::CountAllocation(ThreadCache* own, uint64_t requested, uint64_t allocated,
                                 bool is_large) {
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
  if (is_large) {
    AddTotals(&large_, amounts);
    AddCurrent(&large_, amounts);
    RaisePeaksOf(&large_);
  }
  if (rest.requested == 0 && rest.allocated == 0 && rest.blocks == 0) return;
  // A large block takes nothing from what is left for small ones.
  if (IsWithinPeaks(stats_, rest) && (is_large || IsWithinPeaks(Small(), rest))) {
    AddCurrent(&stats_, rest);
    return;
  }
  ReclaimRooms();
  AddCurrent(&stats_, rest);
  RaisePeaks();
}

void HeapCounts::CountFree(ThreadCache* own, uint64_t requested, uint64_t allocated,
                           bool is_large) {
  ThreadCache::Amounts rest{static_cast<int64_t>(requested), static_cast<int64_t>(allocated), 1};
  if (is_large) AddCurrent(&large_, Negative(rest));
  if (own != nullptr) {
    // Small blocks count a large one's bytes from here on, unless they are subtracted below: what
    // becomes room must fit below their peaks.
    const ThreadCache::Amounts below =
        is_large ? BelowPeaks(Small()) : ThreadCache::Amounts{INT64_MAX, INT64_MAX, INT64_MAX};
    const auto give = [](int64_t* room, int64_t* amount, int64_t spare, int64_t below_peak) {
      if (*room + *amount > spare || below_peak < 0) return;
      *room += *amount;
      *amount = 0;
    };
    give(&own->room.requested, &rest.requested, kSpareRoom.requested, below.requested);
    give(&own->room.allocated, &rest.allocated, kSpareRoom.allocated, below.allocated);
    give(&own->room.blocks, &rest.blocks, kSpareRoom.blocks, below.blocks);
  }
  AddCurrent(&stats_, Negative(rest));
}

void HeapCounts::CountDeferred(uint64_t requested, uint64_t allocated, bool is_large) {
  const auto subtract = [&](auto& s) {
    WEIR_STAT_SUB(s, requested_bytes, requested);
    WEIR_STAT_SUB(s, allocated_bytes, allocated);
    WEIR_STAT_SUB(s, allocations, 1);
  };
  subtract(stats_);
  if (is_large) subtract(large_);
  ++stats_.deferred_frees;
}

void HeapCounts::CountReleased(uint64_t allocated, bool is_large) {
  const auto subtract = [&](auto& s) {
    WEIR_STAT_SUB(s, active_blocks, 1);
    WEIR_STAT_SUB(s, active_bytes, allocated);
  };
  subtract(stats_);
  if (is_large) subtract(large_);
}

}  // namespace weir
