#include "allocator/block/span.h"

#include <set>

#include "allocator/block/pointer_index.h"
#include "tests/support/catch.h"

namespace weir {
namespace {

Block SpanBlock() {
  Block block;
  block.begin = uint64_t{1} << 32;
  block.bytes = kSpanBytes;
  block.state = BlockState::kLive;
  REQUIRE(PointerIndex::Get().Cover(block.begin, block.bytes));
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
      const SmallObject taken = lists.TryTake(c);
      REQUIRE(taken.address >= block.begin);
      REQUIRE(taken.address + SizeOfClass(c) <= block.end());
      REQUIRE(seen.insert(taken.address).second);
      REQUIRE(taken.held->load() == Span::kNotHeld);
      uint32_t object = 0;
      REQUIRE(SpanLists::ObjectAt(*block.span, taken.address, &object));
      REQUIRE(taken.held == &block.span->held[object]);
      REQUIRE_FALSE(SpanLists::ObjectAt(*block.span, taken.address + 1, &object));
      REQUIRE_FALSE(SpanLists::ObjectAt(*block.span, taken.address + SizeOfClass(c) - 1, &object));
    }
    REQUIRE(lists.TryTake(c).address == 0);
    REQUIRE(lists.Verify().empty());
    PointerIndex::Get().ClearSpan(&block);
  }
}

TEST_CASE("no object begins outside a span or in the rest behind its last object", "[span]") {
  for (int c = 0; c < kNumSizeClasses; ++c) {
    SpanLists lists;
    Block block = SpanBlock();
    lists.AddSpan(&block, c);
    uint32_t object = 0, found = 0;
    for (uint64_t at = block.begin - 512; at < block.end() + 1024; at += 512) {
      if (SpanLists::ObjectAt(*block.span, at, &object)) ++found;
    }
    REQUIRE(found == ObjectsPerSpan(c));
    PointerIndex::Get().ClearSpan(&block);
  }
}

TEST_CASE("every slot that a span fills leads to it until it is given up", "[span]") {
  SpanLists lists;
  Block block = SpanBlock();
  PointerIndex& index = PointerIndex::Get();
  index.SetBlock(&block);
  lists.AddSpan(&block, 0);
  for (uint64_t at = block.begin; at < block.end(); at += 512) REQUIRE(index.Find(at) == &block);
  REQUIRE(index.Find(block.end()) == nullptr);
  uint32_t object = 0;
  REQUIRE(SpanLists::ObjectAt(*block.span, lists.TryTake(0).address, &object));
  REQUIRE(lists.Free(block.span, object) == &block);
  REQUIRE(index.Find(block.begin) == &block);
  REQUIRE(index.Find(block.begin + kSpanAlignment) == nullptr);
  index.ClearBlock(block.begin);
}

TEST_CASE("a span whose last object is freed gives its block up", "[span]") {
  SpanLists lists;
  Block block = SpanBlock();
  lists.AddSpan(&block, 3);
  const uint64_t a = lists.TryTake(3).address, b = lists.TryTake(3).address;
  uint32_t object = 0;
  REQUIRE(SpanLists::ObjectAt(*block.span, a, &object));
  REQUIRE(lists.Free(block.span, object) == nullptr);
  REQUIRE(SpanLists::ObjectAt(*block.span, b, &object));
  REQUIRE(lists.Free(block.span, object) == &block);
  REQUIRE(block.span == nullptr);
  REQUIRE(lists.TryTake(3).address == 0);
  REQUIRE(lists.Verify().empty());
}

}  // namespace weir
