// What tests of weir/inspect.h have in common: what a heap shows, checked in itself.
#ifndef WEIR_TESTS_POOL_INSPECT_FIXTURE_H_
#define WEIR_TESTS_POOL_INSPECT_FIXTURE_H_

#include <map>
#include <utility>
#include <vector>

#include "allocator/pool/inspection.h"
#include "tests/pool/heap_fixture.h"

namespace weir::test {

struct ShownSegment {
  weir_segment_info_t info;
  std::vector<weir_block_info_t> blocks;
};
using Shown = std::vector<ShownSegment>;

template <typename Heap>
Shown Show(Heap& heap) {
  Inspection inspection;
  const HeapError error = heap.Inspect(&inspection);
  INFO(error.text);
  REQUIRE(error.ok());
  Shown shown;
  inspection.Visit(
      [](const weir_segment_info_t* segment, const weir_block_info_t* blocks, size_t count,
         void* user) {
        static_cast<Shown*>(user)->push_back({*segment, {blocks, blocks + count}});
      },
      &shown);
  return shown;
}

// Empty, or what is wrong: segments in order, tiled by their blocks, with the right sums.
inline std::string WhatIsWrongIn(const Shown& shown) {
  uint64_t end = 0;
  for (const ShownSegment& s : shown) {
    if (s.info.address < end) return "segments overlap or are out of order";
    if (s.blocks.empty() || s.info.bytes == 0) return "a segment is empty";
    uint64_t at = s.info.address, allocated = 0, active = 0, requested = 0;
    for (const weir_block_info_t& b : s.blocks) {
      if (b.address != at) return "blocks do not tile their segment";
      if (b.state == WEIR_BLOCK_FREE && b.requested_bytes != 0) return "a free block is asked for";
      if (b.state == WEIR_BLOCK_FREE && b.stream != s.info.stream) return "a free block's stream";
      if (b.requested_bytes > b.bytes) return "a block is smaller than its request";
      if (b.state == WEIR_BLOCK_ALLOCATED) allocated += b.bytes, requested += b.requested_bytes;
      if (b.state != WEIR_BLOCK_FREE) active += b.bytes;
      at += b.bytes;
    }
    end = s.info.address + s.info.bytes;
    if (at != end) return "blocks do not fill their segment";
    if (allocated != s.info.allocated_bytes || active != s.info.active_bytes ||
        requested != s.info.requested_bytes)
      return "a segment's sums are wrong";
  }
  return "";
}

struct ShownSums {
  uint64_t bytes = 0, requested = 0, allocated = 0, active = 0, allocations = 0, active_blocks = 0;
};
// Of what counts as large, or of what does not.
inline ShownSums SumsBySize(const Shown& shown, bool large) {
  ShownSums sums;
  for (const ShownSegment& s : shown) {
    if ((s.info.is_large != 0) == large) sums.bytes += s.info.bytes;
    for (const weir_block_info_t& b : s.blocks) {
      if ((s.info.is_large != 0 && b.bytes > 256 * kKiB) != large) continue;
      if (b.state == WEIR_BLOCK_FREE) continue;
      sums.active += b.bytes;
      ++sums.active_blocks;
      if (b.state != WEIR_BLOCK_ALLOCATED) continue;
      sums.allocated += b.bytes;
      sums.requested += b.requested_bytes;
      ++sums.allocations;
    }
  }
  return sums;
}
inline void RequireSums(const weir_size_stats_t& stats, const ShownSums& sums) {
  REQUIRE(stats.requested_bytes == sums.requested);
  REQUIRE(stats.allocated_bytes == sums.allocated);
  REQUIRE(stats.active_bytes == sums.active);
  REQUIRE(stats.allocations == sums.allocations);
  REQUIRE(stats.active_blocks == sums.active_blocks);
}
// What is shown is what the statistics of the same moment say.
template <typename Heap>
void RequireStatsAreShown(Heap& heap, const Shown& shown) {
  weir_stats_t all;
  weir_size_stats_t small, large;
  heap.GetStats(&all);
  heap.GetSizeStats(&small, &large);
  const ShownSums of_small = SumsBySize(shown, false), of_large = SumsBySize(shown, true);
  RequireSums(small, of_small);
  RequireSums(large, of_large);
  REQUIRE(small.reserved_bytes + large.reserved_bytes == of_small.bytes + of_large.bytes);
  // A merge may put bytes of one range into memory of the other.
  if (all.merged_granules == 0) REQUIRE(small.reserved_bytes == of_small.bytes);
#define WEIR_REQUIRE_SUM(name)                                                               \
  if (std::string_view(#name) != "reserved_bytes" && std::string_view(#name) != "handles") { \
    REQUIRE(small.name + large.name == all.name);                                            \
    REQUIRE(small.total_##name + large.total_##name == all.total_##name);                    \
  }                                                                                          \
  REQUIRE(small.peak_##name <= all.peak_##name);                                             \
  REQUIRE(large.peak_##name <= all.peak_##name);                                             \
  REQUIRE(small.peak_##name >= small.name);                                                  \
  REQUIRE(large.peak_##name >= large.name);                                                  \
  REQUIRE(small.total_##name >= small.name);                                                 \
  REQUIRE(large.total_##name >= large.name);
  WEIR_STAT_FIELDS(WEIR_REQUIRE_SUM)
#undef WEIR_REQUIRE_SUM
  REQUIRE(small.reserved_bytes + large.reserved_bytes <= all.reserved_bytes);
  REQUIRE(small.handles + large.handles <= all.handles);
}

}  // namespace weir::test

#endif  // WEIR_TESTS_POOL_INSPECT_FIXTURE_H_
