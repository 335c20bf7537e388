#include "allocator/block/span.h"

#include <set>

#include "tests/support/catch.h"

namespace weir {
namespace {

Block SpanBlock() {
  Block block;
  block.begin = uint64_t{1} << 32;
  block.bytes = kSpanBytes;
  block.state = BlockState::kLive;
  return block;
}

}  // namespace

TEST_CASE("a span hands out each of its objects once", "[span]") {
  for (int c = 0; c < kNumSizeClasses; ++c) {
    SpanLists lists;
    Block block = SpanBlock();
    lists.AddSpan(&block, c);
    std::set<uint64_t> seen;
    for (uint32_t i = 0; i < ObjectsPerSpan(c); ++i) {
      const uint64_t at = lists.TryAllocate(c, SizeOfClass(c) - 7);
      REQUIRE(at >= block.begin);
      REQUIRE(at + SizeOfClass(c) <= block.end());
      REQUIRE(seen.insert(at).second);
      uint32_t object = 0;
      REQUIRE(SpanLists::ObjectAt(*block.span, at, &object));
      REQUIRE_FALSE(SpanLists::ObjectAt(*block.span, at + 1, &object));
      REQUIRE(SpanLists::RequestedBytes(*block.span, object) == SizeOfClass(c) - 7);
    }
    REQUIRE(lists.TryAllocate(c, 1) == 0);
    REQUIRE(lists.Verify().empty());
  }
}

TEST_CASE("a span whose last object is freed gives its block up", "[span]") {
  SpanLists lists;
  Block block = SpanBlock();
  lists.AddSpan(&block, 3);
  const uint64_t a = lists.TryAllocate(3, 2000), b = lists.TryAllocate(3, 2000);
  uint32_t object = 0;
  REQUIRE(SpanLists::ObjectAt(*block.span, a, &object));
  REQUIRE(lists.Free(block.span, object) == nullptr);
  REQUIRE(SpanLists::ObjectAt(*block.span, b, &object));
  REQUIRE(lists.Free(block.span, object) == &block);
  REQUIRE(block.span == nullptr);
  REQUIRE(lists.TryAllocate(3, 2000) == 0);
  REQUIRE(lists.Verify().empty());
}

}  // namespace weir
