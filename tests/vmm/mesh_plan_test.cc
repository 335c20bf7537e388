#include "allocator/vmm/mesh_plan.h"

#include <cstdint>
#include <set>
#include <vector>

#include "tests/support/arena_fixture.h"
#include "tests/support/catch.h"

namespace weir {
namespace {

using test::ArenaFixture;
constexpr uint64_t kGranule = PointerIndex::kGranule;

// Uses [from, from + bytes) of a granule that is mapped by a handle of its own.
Handle* Part(ArenaFixture& f, uint64_t granule, uint64_t from, uint64_t bytes) {
  Handle* handle = f.Map(granule, 1);
  REQUIRE(f.arena().TryAllocateAt(f.begin() + granule * kGranule + from, bytes) != nullptr);
  return handle;
}

std::vector<Merge> Plan(const std::vector<Handle*>& handles, size_t most = SIZE_MAX) {
  std::vector<PartGranule> parts;
  for (const Handle* h : handles) {
    if (const auto part = DescribeGranule(*h, kGranule)) parts.push_back(*part);
  }
  return PlanMerges(parts, most);
}

}  // namespace

TEST_CASE("granules are merged only if no byte of one is used in the other", "[mesh]") {
  ArenaFixture f(16);
  Handle* low = Part(f, 0, 0, kMiB);
  Handle* overlapping = Part(f, 2, kMiB - 512, kMiB);
  REQUIRE(Plan({low, overlapping}).empty());
  Handle* high = Part(f, 4, kMiB, 512 * kKiB);
  const std::vector<Merge> merges = Plan({low, overlapping, high});
  REQUIRE(merges.size() == 1);
  REQUIRE(merges[0].guest == high->mappings);  // the fewest bytes are copied
  REQUIRE(merges[0].host == low->mappings);
}

TEST_CASE("the emptiest granules become guests of the fullest that take them", "[mesh]") {
  ArenaFixture f(32);
  Handle* small = Part(f, 0, 0, 64 * kKiB);
  Handle* middle = Part(f, 2, 128 * kKiB, 512 * kKiB);
  Handle* full = Part(f, 4, 64 * kKiB, kGranule - 64 * kKiB);
  const std::vector<Merge> merges = Plan({middle, full, small});
  REQUIRE(merges.size() == 1);  // the middle one fits into no granule that is left
  REQUIRE(merges[0].guest == small->mappings);
  REQUIRE(merges[0].host == full->mappings);
  REQUIRE(Plan({middle, full, small}, 0).empty());
}

TEST_CASE("a granule is part of one merge, and no more are planned than asked for", "[mesh]") {
  ArenaFixture f(64);
  std::vector<Handle*> parts;
  for (uint64_t i = 0; i < 8; ++i) parts.push_back(Part(f, 2 * i, i * 128 * kKiB, 64 * kKiB));
  REQUIRE(Plan(parts).size() == 4);
  REQUIRE(Plan(parts, 3).size() == 3);
  std::set<const Mapping*> used;
  for (const Merge& merge : Plan(parts)) {
    REQUIRE(used.insert(merge.guest).second);
    REQUIRE(used.insert(merge.host).second);
  }
}

TEST_CASE("granules of different streams are not merged", "[mesh]") {
  int streams[2] = {};  // owners are only compared
  ArenaFixture one(8, reinterpret_cast<StreamHeap*>(&streams[0]));
  ArenaFixture other(8, reinterpret_cast<StreamHeap*>(&streams[1]));
  Handle* low = Part(one, 0, 0, kMiB);
  Handle* high = Part(other, 0, kMiB, kMiB);
  REQUIRE(Plan({low, high}).empty());
  REQUIRE(Plan({low, high, Part(one, 2, kMiB, kMiB)}).size() == 1);
}

TEST_CASE("a granule with a guest takes more of them, and becomes none itself", "[mesh]") {
  ArenaFixture f(32);
  Handle* guest = Part(f, 0, 0, 64 * kKiB);
  Handle* host = Part(f, 2, 64 * kKiB, 128 * kKiB);
  f.Merge(guest->mappings, host->mappings);
  REQUIRE_FALSE(DescribeGranule(*guest, kGranule).has_value());  // a spare now
  const auto part = DescribeGranule(*host, kGranule);
  REQUIRE(part.has_value());
  REQUIRE_FALSE(part->may_move);
  REQUIRE(part->used_bytes == 192 * kKiB);  // what is lent is in use
  // A fuller granule would be its host, but it cannot move.
  Handle* fuller = Part(f, 4, kMiB, kMiB);
  REQUIRE(Plan({host, fuller}).empty());
  Handle* second = Part(f, 6, kMiB, 64 * kKiB);
  const std::vector<Merge> merges = Plan({host, second});
  REQUIRE(merges.size() == 1);
  REQUIRE(merges[0].guest == second->mappings);
  REQUIRE(merges[0].host == host->mappings);
}

TEST_CASE("granules that are idle, full, stitched, taken, stuck or part of a handle stay apart",
          "[mesh]") {
  ArenaFixture f(64);
  Handle* idle = f.Map(0, 1);
  REQUIRE_FALSE(DescribeGranule(*idle, kGranule).has_value());
  Handle* full = Part(f, 2, 0, kGranule);
  REQUIRE_FALSE(DescribeGranule(*full, kGranule).has_value());
  Handle* stitched = Part(f, 4, 0, kMiB);
  f.MapAt(stitched, 8);
  REQUIRE_FALSE(DescribeGranule(*stitched, kGranule).has_value());
  Handle* handle = Part(f, 10, 0, kMiB);
  REQUIRE(DescribeGranule(*handle, kGranule).has_value());
  handle->taken = true;
  REQUIRE_FALSE(DescribeGranule(*handle, kGranule).has_value());
  handle->taken = false;
  handle->stuck.store(true);
  REQUIRE_FALSE(DescribeGranule(*handle, kGranule).has_value());
  Handle* two = f.Map(12, 2);
  REQUIRE(f.arena().TryAllocateAt(f.begin() + 12 * kGranule, kMiB) != nullptr);
  REQUIRE_FALSE(DescribeGranule(*two, kGranule).has_value());
}

TEST_CASE("a granule that somebody has pinned is neither guest nor host", "[mesh]") {
  ArenaFixture f(16);
  Handle* low = Part(f, 0, 0, kMiB);
  Handle* high = Part(f, 2, kMiB, 512 * kKiB);
  Handle* higher = Part(f, 4, kMiB + 512 * kKiB, 256 * kKiB);
  for (Handle* pinned : {low, high, higher}) {
    REQUIRE(Plan({low, high, higher}).size() == 1);
    pinned->pins = 2;
    const std::vector<Merge> merges = Plan({low, high, higher});
    REQUIRE(merges.size() == 1);  // of the two others
    REQUIRE(merges[0].guest != pinned->mappings);
    REQUIRE(merges[0].host != pinned->mappings);
    pinned->pins = 0;
  }
  low->pins = high->pins = 1;
  REQUIRE(Plan({low, high, higher}).empty());
}

TEST_CASE("blocks that begin before a granule or end behind it count with their part", "[mesh]") {
  ArenaFixture f(16);
  Handle* first = f.Map(0, 1);
  Handle* second = f.Map(1, 1);
  REQUIRE(f.arena().TryAllocateAt(f.begin() + kMiB, kGranule) != nullptr);
  REQUIRE(DescribeGranule(*first, kGranule)->used_bytes == kMiB);
  REQUIRE(DescribeGranule(*second, kGranule)->used_bytes == kMiB);
  const std::vector<Merge> merges = Plan({first, second});
  REQUIRE(merges.size() == 1);
  REQUIRE(merges[0].guest != merges[0].host);
}

}  // namespace weir
