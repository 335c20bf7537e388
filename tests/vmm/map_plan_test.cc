#include "allocator/vmm/map_plan.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "tests/support/arena_fixture.h"
#include "tests/support/catch.h"
#include "tests/support/seed.h"

namespace weir {
namespace {

constexpr uint64_t kGranule = PointerIndex::kGranule;

// A handle mapped at one address, or with address 0 nowhere.
struct TestHandle : Handle {
  TestHandle(uint64_t at, uint64_t granules, uint32_t number) {
    id = number + 1;
    bytes = granules * kGranule;
    index = number;
    mapping.at = at;
    mapping.bytes = bytes;
    mapping.handle = this;
    if (at != 0) mappings = &mapping;
  }
  TestHandle(const TestHandle&) = delete;
  TestHandle& operator=(const TestHandle&) = delete;
  Mapping mapping;
};

VictimRules AllComplete() {
  VictimRules rules;
  rules.is_complete = [](const Handle&) { return true; };
  return rules;
}

}  // namespace

TEST_CASE("the window is the place that lacks the least memory", "[plan]") {
  test::ArenaFixture f(64);
  f.Map(0, 4);
  Block* first = f.arena().TryAllocate(2 * kGranule, 512);
  Block* second = f.arena().TryAllocate(2 * kGranule, 512);
  f.Map(10, 3);  // a ready island in the holes
  f.arena().Free(second, 1, false);
  (void)first;
  // 2 granules are ready at [2, 4) and 3 at [10, 13); a block of 4 lacks one beside the island.
  const auto window = FindWindow(f.arena(), 4 * kGranule, 512);
  REQUIRE(window.has_value());
  REQUIRE(window->missing == kGranule);
  REQUIRE(window->holes.size() == 1);
  REQUIRE(window->begin <= f.begin() + 10 * kGranule);
  REQUIRE(window->begin + 4 * kGranule >= f.begin() + 13 * kGranule);
}

TEST_CASE("no other place lacks less memory than the window", "[plan]") {
  std::mt19937_64 random(test::Seed());
  for (int round = 0; round < 60; ++round) {
    constexpr uint64_t kGranules = 48, kUnit = 128 * kKiB;
    test::ArenaFixture f(kGranules);
    std::vector<bool> is_mapped(kGranules);
    std::vector<std::pair<uint64_t, uint64_t>> used;  // begin, end
    const uint64_t share = 2 + random() % 4;
    for (uint64_t g = 0; g < kGranules; ++g) {
      if (random() % share == 0) continue;
      f.Map(g, 1);
      is_mapped[g] = true;
    }
    for (uint64_t i = 0; i < random() % 5; ++i) {
      if (const Block* b = f.arena().TryAllocate(kUnit * (1 + random() % 24), 512))
        used.emplace_back(b->begin, b->end());
    }
    const uint64_t bytes = kUnit * (1 + random() % (12 * kGranule / kUnit));
    uint64_t least = UINT64_MAX;
    for (uint64_t begin = f.begin(); begin + bytes <= f.begin() + kGranules * kGranule;
         begin += kUnit) {
      const uint64_t end = begin + bytes;
      if (std::any_of(used.begin(), used.end(),
                      [&](const auto& u) { return u.first < end && begin < u.second; }))
        continue;
      uint64_t missing = 0;
      for (uint64_t g = (begin - f.begin()) / kGranule; f.begin() + g * kGranule < end; ++g)
        missing += is_mapped[g] ? 0 : kGranule;
      least = std::min(least, missing);
    }
    const auto window = FindWindow(f.arena(), bytes, 512);
    REQUIRE(window.has_value() == (least != UINT64_MAX));
    if (window.has_value()) REQUIRE(window->missing == least);
  }
}

TEST_CASE("a run of many pieces is looked at in little time", "[plan]") {
  constexpr uint64_t kGranules = 40'000;
  const uint64_t begin = uint64_t{100} << 40;
  REQUIRE(PointerIndex::Get().Cover(begin, kGranules * kGranule));
  HeapRecords records;
  std::vector<std::unique_ptr<TestHandle>> handles;
  Arena arena(kGranule, nullptr, &records);
  arena.AddHoles(begin, kGranules * kGranule);
  for (uint64_t g = 0; g < kGranules; g += 2) {  // every second granule is mapped
    const uint64_t at = begin + g * kGranule;
    Block* busy = arena.CarveBusy(PointerIndex::Get().FindContaining(at), at, at + kGranule);
    handles.push_back(std::make_unique<TestHandle>(at, 1, static_cast<uint32_t>(g)));
    PointerIndex::Get().SetMapping(&handles.back()->mapping, at, kGranule);
    arena.Settle(busy, at);
  }
  const auto start = std::chrono::steady_clock::now();
  REQUIRE(FindWindow(arena, kGranules / 4 * kGranule, 512)->missing == kGranules / 8 * kGranule);
  REQUIRE(std::chrono::steady_clock::now() - start < std::chrono::seconds(4));
  PointerIndex::Get().SetMapping(nullptr, begin, kGranules * kGranule);
}

TEST_CASE("a window need not end on a granule, its holes do", "[plan]") {
  test::ArenaFixture f(64);
  const auto window = FindWindow(f.arena(), kGranule + 512, 512);
  REQUIRE(window.has_value());
  REQUIRE(window->begin == f.begin());
  REQUIRE(window->missing == 2 * kGranule);
  REQUIRE(window->busy_end == f.begin() + 2 * kGranule);
}

TEST_CASE("a window is aligned as asked", "[plan]") {
  test::ArenaFixture f(64);
  f.Map(0, 1);
  REQUIRE(f.arena().TryAllocate(33 * kKiB, 512) != nullptr);
  const auto window = FindWindow(f.arena(), 3 * kMiB, kMiB);
  REQUIRE(window.has_value());
  REQUIRE(window->begin % kMiB == 0);
}

TEST_CASE("no window is found in a run that is too short", "[plan]") {
  test::ArenaFixture f(4);
  REQUIRE_FALSE(FindWindow(f.arena(), 5 * kGranule, 512).has_value());
}

TEST_CASE("victims are spares, then the highest addresses, and no more than needed", "[plan]") {
  TestHandle low(100 * kGranule, 1, 0), high(200 * kGranule, 1, 1);
  TestHandle spare(0, 1, 2), large(150 * kGranule, 8, 3);
  const std::vector<Handle*> all{&low, &high, &spare, &large};
  REQUIRE(ChooseVictims(all, kGranule, AllComplete()) == std::vector<Handle*>{&spare});
  REQUIRE(ChooseVictims(all, 2 * kGranule, AllComplete()) == std::vector<Handle*>{&spare, &high});
  // The large one covers what the earlier ones were chosen for.
  REQUIRE(ChooseVictims(all, 8 * kGranule, AllComplete()) == std::vector<Handle*>{&large});
}

TEST_CASE("handles in use, taken, or inside the window are no victims", "[plan]") {
  TestHandle live(100 * kGranule, 1, 0), taken(101 * kGranule, 1, 1);
  TestHandle inside(102 * kGranule, 1, 2), good(103 * kGranule, 1, 3);
  live.mapping.live = 1;
  taken.taken = true;
  VictimRules rules = AllComplete();
  rules.keep_begin = 102 * kGranule;
  rules.keep_end = 103 * kGranule;
  REQUIRE(ChooseVictims({&live, &taken, &inside, &good}, 10 * kGranule, rules) ==
          std::vector<Handle*>{&good});
}

TEST_CASE("incomplete handles are victims only when waiting is allowed, and last", "[plan]") {
  TestHandle late(200 * kGranule, 1, 0), done(100 * kGranule, 1, 1);
  VictimRules rules;
  rules.is_complete = [&](const Handle& h) { return &h == &done; };
  REQUIRE(ChooseVictims({&late, &done}, 2 * kGranule, rules) == std::vector<Handle*>{&done});
  rules.take_incomplete = true;
  REQUIRE(ChooseVictims({&late, &done}, 2 * kGranule, rules) == std::vector<Handle*>{&done, &late});
}

TEST_CASE("victims that tile are mapped, others are released and made anew", "[plan]") {
  TestHandle two(100 * kGranule, 2, 0), five(200 * kGranule, 5, 1);
  const std::vector<AddressRange> holes{{10 * kGranule, 3 * kGranule}};
  const MapPlan plan = TileHoles(holes, {&five, &two}, kGranule);
  REQUIRE(plan.released == std::vector<Handle*>{&five});
  REQUIRE(plan.pieces.size() == 2);
  REQUIRE(plan.pieces[0].handle == &two);
  REQUIRE(plan.pieces[1].created);
  REQUIRE(plan.pieces[1].at == 12 * kGranule);
}

TEST_CASE("pieces tile every hole exactly and are no longer than allowed", "[plan]") {
  const std::vector<AddressRange> holes{{0x40000000, 7 * kGranule}, {0x80000000, kGranule}};
  for (uint64_t longest : {kGranule, 2 * kGranule, 64 * kGranule}) {
    const MapPlan plan = TileHoles(holes, {}, longest);
    uint64_t sum = 0, at = holes[0].begin;
    for (const Piece& piece : plan.pieces) {
      if (sum == 7 * kGranule) at = holes[1].begin;
      REQUIRE(piece.at == at);
      REQUIRE(piece.bytes <= longest);
      at += piece.bytes;
      sum += piece.bytes;
    }
    REQUIRE(sum == 8 * kGranule);
  }
}

TEST_CASE("a fresh place begins in the ready block before the largest hole, if that is too short",
          "[plan]") {
  test::ArenaFixture f(64);
  f.Map(0, 2);
  REQUIRE(f.arena().TryAllocate(kGranule, 512) != nullptr);
  const uint64_t hole = f.begin() + 2 * kGranule;
  auto place = FindFreshPlace(f.arena(), 3 * kGranule, 512);
  REQUIRE(place.has_value());
  REQUIRE(place->begin == hole - kGranule);
  REQUIRE(place->busy_begin == hole - kGranule);
  REQUIRE(place->missing == 2 * kGranule);
  REQUIRE(place->holes.size() == 1);
  REQUIRE(place->holes[0].begin == hole);
  // The block before would serve the request alone: nothing of it is taken.
  place = FindFreshPlace(f.arena(), kGranule, 512);
  REQUIRE(place->begin == hole);
  REQUIRE(place->missing == kGranule);
  // Aligned, it would begin in the hole.
  place = FindFreshPlace(f.arena(), 3 * kGranule, 16 * kGranule);
  REQUIRE(place->begin % (16 * kGranule) == 0);
  REQUIRE(place->holes[0].begin == hole);
  REQUIRE_FALSE(FindFreshPlace(f.arena(), 64 * kGranule, 512).has_value());
}

TEST_CASE("a fresh place does not begin in memory that is there twice", "[plan]") {
  test::ArenaFixture f(64);
  f.MapAt(f.Map(0, 1), 1);
  const auto place = FindFreshPlace(f.arena(), 3 * kGranule, 512);
  REQUIRE(place.has_value());
  REQUIRE(place->begin == f.begin() + 2 * kGranule);
}

TEST_CASE("a window does not contain the same memory twice", "[plan]") {
  test::ArenaFixture f(64);
  Handle* handle = f.Map(0, 1);
  f.MapAt(handle, 1);
  const auto window = FindWindow(f.arena(), 3 * kGranule, 512);
  REQUIRE(window.has_value());
  REQUIRE(f.arena().IsDistinct(window->begin, window->begin + 3 * kGranule));
}

TEST_CASE("a row is the victims side by side, then new memory, and may be longer than asked",
          "[plan]") {
  TestHandle two(100 * kGranule, 2, 0), five(200 * kGranule, 5, 1);
  const AddressRange hole{10 * kGranule, 9 * kGranule};
  MapPlan plan = TileRow(hole, {&five, &two}, kGranule);
  REQUIRE(plan.pieces.size() == 4);
  REQUIRE(plan.pieces[0].handle == &five);
  REQUIRE(plan.pieces[0].at == hole.begin);
  REQUIRE(plan.pieces[1].handle == &two);
  REQUIRE(plan.pieces[1].at == hole.begin + 5 * kGranule);
  REQUIRE(plan.pieces[2].created);
  REQUIRE(plan.pieces[3].at == hole.begin + 8 * kGranule);
  REQUIRE(plan.released.empty());
  REQUIRE(plan.unmapped.empty());  // they stay where they are, too
  REQUIRE(plan.holes.size() == 1);
  REQUIRE(plan.holes[0].bytes == hole.bytes);
  plan = TileRow({hole.begin, 6 * kGranule}, {&five, &two}, kGranule);
  REQUIRE(plan.pieces.size() == 2);
  REQUIRE(plan.holes[0].bytes == 7 * kGranule);
}

}  // namespace weir
