// weir/inspect.h through the C functions: on every source of memory.
#include "weir/inspect.h"

#include <cstdint>
#include <string_view>
#include <vector>

#include "tests/capi/simulated_weir.h"

namespace weir::test {
namespace {

struct Segment {
  weir_segment_info_t info;
  std::vector<weir_block_info_t> blocks;
};
std::vector<Segment> Segments(int device = 0) {
  std::vector<Segment> segments;
  REQUIRE(weir_visit_segments(
              device,
              [](const weir_segment_info_t* segment, const weir_block_info_t* blocks, size_t count,
                 void* user) {
                static_cast<std::vector<Segment>*>(user)->push_back(
                    {*segment, {blocks, blocks + count}});
              },
              &segments) == WEIR_OK);
  return segments;
}

uint64_t AddressOf(const void* ptr) { return reinterpret_cast<uintptr_t>(ptr); }

TEST_CASE("every block is found among the segments and by its address", "[capi][inspect]") {
  const SimulatedWeir weir;
  const weir_stream_t stream = NewStream(1);
  std::vector<void*> blocks;
  for (size_t bytes : kSizes) blocks.push_back(weir_malloc_async_device(bytes, 1, stream));
  blocks.push_back(weir_malloc_device(1000, 1));
  const std::vector<Segment> segments = Segments(1);
  uint64_t allocated = 0, requested = 0, bytes = 0, at = 0, count = 0;
  for (const Segment& s : segments) {
    CHECK(s.info.device == 1);
    CHECK(s.info.address >= at);
    CHECK(s.info.pool == 0);
    at = s.info.address + s.info.bytes;
    allocated += s.info.allocated_bytes;
    requested += s.info.requested_bytes;
    bytes += s.info.bytes;
    for (const weir_block_info_t& b : s.blocks) count += b.state == WEIR_BLOCK_ALLOCATED ? 1 : 0;
  }
  const weir_stats_t stats = SimulatedWeir::Stats(1);
  CHECK(allocated == stats.allocated_bytes);
  CHECK(requested == stats.requested_bytes);
  CHECK(bytes == stats.reserved_bytes);
  CHECK(count == blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    weir_block_info_t block{};
    weir_segment_info_t segment{};
    REQUIRE(weir_find_block(static_cast<char*>(blocks[i]), &block, &segment) == WEIR_OK);
    const bool is_any = i == std::size(kSizes);
    CHECK(block.address == AddressOf(blocks[i]));
    CHECK(block.requested_bytes == (is_any ? 1000 : kSizes[i]));
    CHECK(block.stream == (is_any ? WEIR_ANY_STREAM : stream));
    CHECK(block.state == WEIR_BLOCK_ALLOCATED);
    CHECK(segment.device == 1);
    CHECK(segment.stream == block.stream);
    CHECK(segment.is_large == (block.requested_bytes > 262144 ? 1 : 0));
    CHECK(segment.is_mapped == (TestOptions() == "vmm:off" || IsPassthrough() ? 0 : 1));
    CHECK(segment.address <= block.address);
    CHECK(segment.address + segment.bytes >= block.address + block.bytes);
    // Inside, too, and with nothing to be told.
    char* last = static_cast<char*>(blocks[i]) + block.requested_bytes - 1;
    REQUIRE(weir_find_block(last, &block, nullptr) == WEIR_OK);
    CHECK(block.address == AddressOf(blocks[i]));
    CHECK(weir_find_block(last, nullptr, nullptr) == WEIR_OK);
  }
  for (void* block : blocks) CHECK(weir_free(block) == WEIR_OK);
}

TEST_CASE("addresses that are nobody's are not owned", "[capi][inspect]") {
  const SimulatedWeir weir;
  int local = 0;
  for (const void* ptr : {static_cast<const void*>(nullptr), static_cast<const void*>(&local),
                          reinterpret_cast<const void*>(UINTPTR_MAX)}) {
    weir_block_info_t block{};
    CHECK(weir_find_block(ptr, &block, nullptr) == WEIR_ERROR_NOT_OWNED);
    CHECK(block.address == 0);
  }
  void* block = weir_malloc(5 * kMiB);
  REQUIRE(weir_free(block) == WEIR_OK);
  REQUIRE(weir_empty_cache(0) == WEIR_OK);
  CHECK(weir_find_block(block, nullptr, nullptr) == WEIR_ERROR_NOT_OWNED);
}

TEST_CASE("a pool's segments say whose they are, until it is released", "[capi][inspect]") {
  const SimulatedWeir weir;
  if (IsPassthrough()) return;
  weir_pool_t pool = 0;
  REQUIRE(weir_pool_create(0, &pool) == WEIR_OK);
  REQUIRE(weir_pool_begin(pool) == WEIR_OK);
  void* inside = weir_malloc_async(1000, nullptr);
  REQUIRE(weir_pool_end(pool) == WEIR_OK);
  void* outside = weir_malloc_async(1000, nullptr);
  weir_segment_info_t segment{};
  REQUIRE(weir_find_block(inside, nullptr, &segment) == WEIR_OK);
  CHECK(segment.pool == pool);
  REQUIRE(weir_find_block(outside, nullptr, &segment) == WEIR_OK);
  CHECK(segment.pool == 0);
  REQUIRE(weir_pool_release(pool) == WEIR_OK);
  weir_block_info_t block{};
  REQUIRE(weir_find_block(inside, &block, &segment) == WEIR_OK);
  CHECK(segment.pool == 0);
  CHECK(block.stream == WEIR_NO_STREAM);
  CHECK(weir_free_ordered(inside) == WEIR_OK);
  CHECK(weir_free_ordered(outside) == WEIR_OK);
}

TEST_CASE("a visitor may call Weir", "[capi][inspect]") {
  const SimulatedWeir weir;
  void* block = weir_malloc(3 * kMiB);
  int visits = 0;
  REQUIRE(weir_visit_segments(
              0,
              [](const weir_segment_info_t*, const weir_block_info_t*, size_t, void* user) {
                CHECK(weir_free(weir_malloc(300)) == WEIR_OK);
                CHECK(weir_empty_cache(0) == WEIR_OK);
                ++*static_cast<int*>(user);
              },
              &visits) == WEIR_OK);
  CHECK(visits == 1);
  CHECK(weir_free(block) == WEIR_OK);
}

TEST_CASE("statistics by size are the statistics of all blocks, split", "[capi][inspect]") {
  const SimulatedWeir weir;
  REQUIRE(weir_reset_peak_stats(0) == WEIR_OK);
  weir_size_stats_t before_small, before_large, small, large;
  REQUIRE(weir_get_size_stats(0, &before_small, &before_large) == WEIR_OK);
  std::vector<void*> blocks;
  uint64_t small_bytes = 0, large_bytes = 0;
  for (size_t bytes : kSizes) {
    blocks.push_back(weir_malloc_async(bytes, nullptr));
    (bytes > 262144 ? large_bytes : small_bytes) += bytes;
  }
  REQUIRE(weir_get_size_stats(0, &small, &large) == WEIR_OK);
  CHECK(small.requested_bytes == small_bytes);
  CHECK(large.requested_bytes == large_bytes);
  CHECK(small.allocations + large.allocations == blocks.size());
  CHECK(small.reserved_bytes + large.reserved_bytes == SimulatedWeir::Stats().reserved_bytes);
  CHECK(small.handles + large.handles == SimulatedWeir::Stats().handles);
  for (void* block : blocks) CHECK(weir_free_ordered(block) == WEIR_OK);
  REQUIRE(weir_empty_cache(0) == WEIR_OK);
  REQUIRE(weir_get_size_stats(0, &small, &large) == WEIR_OK);
  CHECK(small.requested_bytes == 0);
  CHECK(large.reserved_bytes == 0);
  CHECK(small.peak_requested_bytes == small_bytes);
  CHECK(large.peak_requested_bytes == large_bytes);
  CHECK(large.total_requested_bytes == before_large.total_requested_bytes + large_bytes);
  CHECK(small.total_requested_bytes == before_small.total_requested_bytes + small_bytes);
  CHECK(large.peak_reserved_bytes >= large_bytes);
  REQUIRE(weir_reset_peak_stats(0) == WEIR_OK);
  REQUIRE(weir_get_size_stats(0, &small, &large) == WEIR_OK);
  CHECK(small.peak_requested_bytes == 0);
  CHECK(large.peak_requested_bytes == 0);
  CHECK(large.peak_reserved_bytes == 0);
}

TEST_CASE("inspection says what is wrong with its arguments", "[capi][inspect]") {
  const SimulatedWeir weir;
  weir_size_stats_t stats;
  CHECK(weir_visit_segments(0, nullptr, nullptr) == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(ErrorSays("visit is NULL"));
  CHECK(weir_get_size_stats(0, nullptr, &stats) == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(weir_get_size_stats(0, &stats, nullptr) == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(weir_get_size_stats(2, &stats, &stats) == WEIR_ERROR_NO_DEVICE);
}

}  // namespace
}  // namespace weir::test
