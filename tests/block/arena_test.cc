#include "allocator/block/arena.h"

#include <algorithm>
#include <map>
#include <random>

#include "tests/support/arena_fixture.h"
#include "tests/support/catch.h"
#include "tests/support/seed.h"

namespace weir {
namespace {

constexpr uint64_t kGranule = PointerIndex::kGranule;
using test::ArenaFixture;

}  // namespace

TEST_CASE("nothing is allocated from address space without memory", "[arena]") {
  ArenaFixture f(8);
  REQUIRE(f.arena().TryAllocate(512, 512) == nullptr);
  REQUIRE(f.arena().Verify().empty());
}

TEST_CASE("neighbours share a granule, and free blocks coalesce", "[arena]") {
  ArenaFixture f(8);
  f.Map(0, 2);
  Arena& arena = f.arena();
  Block* a = arena.TryAllocate(kGranule / 2 + 512, 512);
  Block* b = arena.TryAllocate(kGranule, 512);
  REQUIRE(a->begin == f.begin());
  REQUIRE(b->begin == a->end());
  REQUIRE(f.handles()[0]->mappings->live == 2);
  arena.Free(a, 1, false);
  arena.Free(b, 2, false);
  REQUIRE(arena.Verify().empty());
  REQUIRE(f.handles()[0]->mappings->live == 0);
  REQUIRE(f.handles()[0]->mappings->idle_epoch == 2);
  REQUIRE(arena.TryAllocate(2 * kGranule, 512) != nullptr);
}

TEST_CASE("the kept block serves an equal request and is coalesced by any other", "[arena]") {
  ArenaFixture f(8);
  f.Map(0, 4);
  Arena& arena = f.arena();
  Block* a = arena.TryAllocate(kGranule, 512);
  const uint64_t at = a->begin;
  arena.Free(a, 1, true);
  REQUIRE(a->state == BlockState::kKept);
  REQUIRE(arena.Verify().empty());
  REQUIRE(arena.TryAllocate(kGranule, 512) == a);
  arena.Free(a, 1, true);
  Block* c = arena.TryAllocate(4 * kGranule, 512);
  REQUIRE(c != nullptr);
  REQUIRE(c->begin == at);
}

TEST_CASE("an aligned block leaves the bytes before it free", "[arena]") {
  ArenaFixture f(8);
  f.Map(0, 4);
  Arena& arena = f.arena();
  Block* a = arena.TryAllocate(33 * kKiB, 512);
  Block* b = arena.TryAllocate(kMiB, kMiB);
  REQUIRE(b->begin % kMiB == 0);
  Block* c = arena.TryAllocate(kMiB - 33 * kKiB, 512);
  REQUIRE(c->begin == a->end());
  REQUIRE(arena.Verify().empty());
}

TEST_CASE("an idle handle inside a free block can be unmapped without its neighbours", "[arena]") {
  ArenaFixture f(8);
  f.Map(0, 1);
  f.Map(1, 1);
  f.Map(2, 1);
  f.Unmap(f.handles()[1].get());
  REQUIRE(f.arena().Verify().empty());
  REQUIRE(f.arena().TryAllocate(2 * kGranule, 512) == nullptr);
  REQUIRE(f.arena().TryAllocate(kGranule, 512) != nullptr);
}

TEST_CASE("regions that touch become one", "[arena]") {
  ArenaFixture f(4);
  REQUIRE(PointerIndex::Get().Cover(f.begin() + 4 * kGranule, 8 * kGranule));
  f.arena().AddHoles(f.begin() + 8 * kGranule, 4 * kGranule);
  REQUIRE(f.arena().LargestHole()->bytes == 4 * kGranule);
  f.arena().AddHoles(f.begin() + 4 * kGranule, 4 * kGranule);
  REQUIRE(f.arena().LargestHole()->bytes == 12 * kGranule);
  REQUIRE(f.arena().Verify().empty());
}

TEST_CASE("whole units without memory are taken out, on both sides of what is mapped", "[arena]") {
  ArenaFixture f(16);
  f.Map(5, 1);
  REQUIRE(f.arena().TakeHoles(16 * kGranule).empty());
  const auto taken = f.arena().TakeHoles(4 * kGranule);  // units 0, 2 and 3; unit 1 has memory
  uint64_t bytes = 0;
  for (const AddressRange& range : taken) bytes += range.bytes;
  REQUIRE(bytes == 12 * kGranule);
  REQUIRE(f.arena().LargestHole()->bytes == 2 * kGranule);
  REQUIRE(f.arena().Verify().empty());
  REQUIRE(f.arena().TryAllocate(kGranule, 512)->begin == f.begin() + 5 * kGranule);
}

TEST_CASE("a handle remembers the newest free of its blocks, whichever is uncounted last",
          "[arena]") {
  ArenaFixture f(8);
  f.Map(0, 1);
  Arena& arena = f.arena();
  Block* a = arena.TryAllocate(kGranule / 2, 512);
  Block* b = arena.TryAllocate(kGranule / 2, 512);
  arena.Free(a, 1, /*keep=*/true);
  arena.Free(b, 7, /*keep=*/false);
  arena.FlushKept();
  REQUIRE(f.handles()[0]->mappings->live == 0);
  REQUIRE(f.handles()[0]->mappings->idle_epoch == 7);
}

TEST_CASE("random use of an arena keeps its invariants and never overlaps blocks", "[arena]") {
  std::mt19937_64 random(test::Seed());
  ArenaFixture f(64);
  Arena& arena = f.arena();
  std::map<uint64_t, Block*> live;
  for (int step = 0; step < 4000; ++step) {
    const uint64_t pick = random() % 10;
    if (pick < 5) {
      const uint64_t bytes = 33 * kKiB + 512 * (random() % 5000);
      const uint64_t alignment = uint64_t{512} << (random() % 4 == 0 ? random() % 8 : 0);
      if (Block* b = arena.TryAllocate(bytes, alignment)) {
        REQUIRE(b->begin % alignment == 0);
        auto next = live.lower_bound(b->begin);
        if (next != live.end()) REQUIRE(b->end() <= next->first);
        if (next != live.begin()) REQUIRE(std::prev(next)->second->end() <= b->begin);
        REQUIRE(PointerIndex::Get().Find(b->begin) == b);
        live[b->begin] = b;
      }
    } else if (pick < 9) {
      if (live.empty()) continue;
      auto it = std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size()));
      arena.Free(it->second, static_cast<Epoch>(step), random() % 2 == 0);
      live.erase(it);
    } else {
      std::vector<Handle*> idle;
      arena.FlushKept();
      for (auto& h : f.handles()) {
        if (h->mappings != nullptr && h->is_idle()) idle.push_back(h.get());
      }
      if (!idle.empty() && random() % 2 == 0) {
        f.Unmap(idle[random() % idle.size()]);
      } else {
        const uint64_t granule = random() % 62;
        const uint64_t count = 1 + random() % 2;
        bool unmapped = true;
        for (uint64_t g = granule; g < granule + count; ++g)
          unmapped &= PointerIndex::Get().FindMapping(f.begin() + g * kGranule) == nullptr;
        if (unmapped) f.Map(granule, count);
      }
    }
    const std::string broken = arena.Verify();
    INFO(broken);
    REQUIRE(broken.empty());
  }
}

}  // namespace weir
