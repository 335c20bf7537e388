// What weir/pools.h promises about pools with options, and about returning to earlier states.
#include <vector>

#include "tests/capi/simulated_weir.h"
#include "weir/inspect.h"
#include "weir/pools.h"

namespace weir::test {
namespace {

// A source that allocates with Weir, while requests of its thread are routed to the pool.
struct FromWeir {
  int given = 0;
  int returned = 0;
};
void* Give(size_t bytes, int device, weir_stream_t stream, void* user) {
  ++static_cast<FromWeir*>(user)->given;
  return weir_malloc_async_device(bytes, device, stream);
}
void TakeBack(void* ptr, size_t, int, weir_stream_t stream, void* user) {
  ++static_cast<FromWeir*>(user)->returned;
  CHECK(weir_free_async(ptr, stream) == WEIR_OK);
}

void* AllocateIn(weir_pool_t pool, size_t bytes, weir_stream_t stream) {
  REQUIRE(weir_pool_begin(pool) == WEIR_OK);
  void* block = weir_malloc_async(bytes, stream);
  REQUIRE(weir_pool_end(pool) == WEIR_OK);
  INFO(weir_last_error());
  REQUIRE(block != nullptr);
  return block;
}

// The blocks that the pool has in use.
std::vector<weir_block_info_t> StateOf(weir_pool_t pool) {
  struct Visit {
    weir_pool_t pool;
    std::vector<weir_block_info_t> blocks;
  } visit{pool, {}};
  const auto add = [](const weir_segment_info_t* segment, const weir_block_info_t* blocks,
                      size_t count, void* user) {
    auto* v = static_cast<Visit*>(user);
    if (segment->pool != v->pool) return;
    for (size_t i = 0; i < count; ++i) {
      if (blocks[i].state == WEIR_BLOCK_ALLOCATED) v->blocks.push_back(blocks[i]);
    }
  };
  REQUIRE(weir_visit_segments(0, add, &visit) == WEIR_OK);
  return visit.blocks;
}

TEST_CASE("a source may allocate with Weir, whose routes do not lead back to it", "[pools]") {
  if (IsPassthrough()) return;
  const SimulatedWeir weir;
  const weir_stream_t stream = NewStream();
  FromWeir source;
  weir_pool_options_t options = {};
  options.allocate = &Give;
  options.deallocate = &TakeBack;
  options.user = &source;
  weir_pool_t pool = 0;
  REQUIRE(weir_pool_create_with(0, &options, &pool) == WEIR_OK);
  void* first = AllocateIn(pool, 3 * kMiB, stream);
  void* second = AllocateIn(pool, 3 * kMiB, stream);
  CHECK(source.given == 1);
  REQUIRE(weir_verify() == WEIR_OK);
  REQUIRE(weir_free_async(first, stream) == WEIR_OK);
  REQUIRE(weir_pool_release(pool) == WEIR_OK);
  CHECK(source.returned == 0);
  REQUIRE(weir_free_async(second, stream) == WEIR_OK);
  CHECK(weir_empty_cache(0) == WEIR_OK);
  CHECK(source.returned == 1);
}

TEST_CASE("options of pools that cannot be are refused", "[pools]") {
  if (IsPassthrough()) return;
  const SimulatedWeir weir;
  weir_pool_t pool = 0;
  weir_pool_options_t options = {};
  options.allocate = &Give;
  CHECK(weir_pool_create_with(0, &options, &pool) == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(ErrorSays("both functions"));
  options = {};
  options.unused_[2] = 1;
  CHECK(weir_pool_create_with(0, &options, &pool) == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(ErrorSays("unused_"));
  for (const auto function : {&weir_pool_set_no_split, &weir_pool_empty}) {
    CHECK(function(pool) == WEIR_ERROR_INVALID_ARGUMENT);
  }
  CHECK(weir_pool_set_use_on_oom(pool, 1) == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(weir_pool_restore(pool, nullptr, 0) == WEIR_ERROR_INVALID_ARGUMENT);
}

TEST_CASE("a pool returns to a state that weir_visit_segments has shown", "[pools]") {
  if (IsPassthrough()) return;
  const SimulatedWeir weir;
  const weir_stream_t stream = NewStream(), other = NewStream();
  weir_pool_t pool = 0;
  REQUIRE(weir_pool_create(0, &pool) == WEIR_OK);
  for (const size_t bytes : kSizes) {
    AllocateIn(pool, bytes, stream);
    AllocateIn(pool, bytes, other);
  }
  const std::vector<weir_block_info_t> full = StateOf(pool);
  CHECK(full.size() == 2 * std::size(kSizes));
  REQUIRE(weir_pool_restore(pool, nullptr, 0) == WEIR_OK);
  CHECK(StateOf(pool).empty());
  AllocateIn(pool, 7 * kMiB, stream);
  AllocateIn(pool, 9000, other);
  REQUIRE(weir_pool_restore(pool, full.data(), full.size()) == WEIR_OK);
  const std::vector<weir_block_info_t> again = StateOf(pool);
  REQUIRE(again.size() == full.size());
  for (size_t i = 0; i < full.size(); ++i) {
    CHECK(again[i].address == full[i].address);
    CHECK(again[i].bytes == full[i].bytes);
    CHECK(again[i].requested_bytes == full[i].requested_bytes);
    CHECK(again[i].stream == full[i].stream);
    CHECK(weir_free_async(reinterpret_cast<void*>(full[i].address), full[i].stream) == WEIR_OK);
  }
  REQUIRE(weir_pool_release(pool) == WEIR_OK);
}

}  // namespace
}  // namespace weir::test
