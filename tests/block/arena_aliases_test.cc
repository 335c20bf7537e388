// Memory mapped at several addresses: stitched mappings and guests (block.h, Note [Aliases]).
#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "allocator/vmm/mesh_plan.h"
#include "tests/support/arena_fixture.h"
#include "tests/support/catch.h"
#include "tests/support/seed.h"

namespace weir {
namespace {

using test::ArenaFixture;
constexpr uint64_t kGranule = PointerIndex::kGranule;

BlockState StateAt(uint64_t address) { return PointerIndex::Get().FindContaining(address)->state; }

void RequireValid(const Arena& arena) {
  const std::string broken = arena.Verify();
  INFO(broken);
  REQUIRE(broken.empty());
}

}  // namespace

TEST_CASE("of stitched mappings one is used, the others are shadows until the handle is idle",
          "[aliases]") {
  ArenaFixture f(16);
  Handle* handle = f.Map(0, 1);
  Mapping* second = f.MapAt(handle, 4);
  Mapping* third = f.MapAt(handle, 8);
  REQUIRE(f.records().alias_bytes == 2 * kGranule);
  for (Mapping* use : {second, third, second}) {
    Block* a = f.arena().TryAllocateAt(use->at, kMiB);
    REQUIRE(a != nullptr);
    REQUIRE(handle->mappings == use);  // the owner
    RequireValid(f.arena());
    for (const Mapping* m = use->next; m != nullptr; m = m->next) {
      REQUIRE(StateAt(m->at) == BlockState::kShadow);
      REQUIRE(f.arena().TryAllocateAt(m->at, kMiB) == nullptr);
    }
    // The rest of the owner can be used, and only it.
    Block* b = f.arena().TryAllocate(kMiB, 512);
    REQUIRE(b->begin == use->at + kMiB);
    REQUIRE(f.arena().TryAllocate(kMiB, 512) == nullptr);
    f.arena().Free(a, 1, /*keep=*/false);
    REQUIRE_FALSE(handle->is_idle());
    RequireValid(f.arena());
    f.arena().Free(b, 2, /*keep=*/false);
    REQUIRE(handle->is_idle());
    for (const Mapping* m = handle->mappings; m != nullptr; m = m->next) {
      REQUIRE(StateAt(m->at) == BlockState::kReady);
    }
    RequireValid(f.arena());
  }
}

TEST_CASE("a mapping added to a handle in use is a shadow, and ready when the handle is idle",
          "[aliases]") {
  ArenaFixture f(16);
  Handle* handle = f.Map(0, 2);
  Block* a = f.arena().TryAllocate(kMiB, 512);
  Mapping* second = f.MapAt(handle, 4);
  REQUIRE(StateAt(second->at) == BlockState::kShadow);
  RequireValid(f.arena());
  f.arena().Free(a, 1, /*keep=*/false);
  REQUIRE(StateAt(second->at) == BlockState::kReady);
  f.Unmap(second);
  REQUIRE(f.records().alias_bytes == 0);
  REQUIRE_FALSE(handle->mappings->shared);
  RequireValid(f.arena());
}

TEST_CASE("no block gets the same memory twice", "[aliases]") {
  ArenaFixture f(16);
  Handle* handle = f.Map(0, 1);
  f.MapAt(handle, 1);
  Arena& arena = f.arena();
  REQUIRE_FALSE(arena.IsDistinct(f.begin() + kMiB, f.begin() + 3 * kMiB));
  REQUIRE(arena.TryAllocate(2 * kGranule, 512) == nullptr);
  REQUIRE(arena.TryAllocateAt(f.begin() + kMiB, kGranule) == nullptr);
  f.Map(2, 1);
  // Beside a handle of its own the second mapping serves.
  REQUIRE(arena.TryAllocate(3 * kGranule, 512) == nullptr);
  REQUIRE(arena.TryAllocateAt(f.begin() + kGranule, 2 * kGranule) != nullptr);
  REQUIRE(StateAt(f.begin()) == BlockState::kShadow);
  RequireValid(arena);
}

TEST_CASE("a guest uses what its host lends, which is returned with the guest's blocks",
          "[aliases]") {
  ArenaFixture f(16);
  Arena& arena = f.arena();
  f.Map(0, 1);
  Handle* host = f.Map(4, 1);
  Block* low = arena.TryAllocateAt(f.begin(), 256 * kKiB);
  Block* high = arena.TryAllocateAt(f.begin() + kMiB, 512 * kKiB);
  Block* hosted = arena.TryAllocateAt(f.begin() + 4 * kGranule + 512 * kKiB, 512 * kKiB);
  Mapping* guest = f.handles()[0]->mappings;
  f.Merge(guest, host->mappings);
  REQUIRE(f.handles()[0]->mappings == nullptr);  // a spare
  REQUIRE(f.records().guests == 1);
  RequireValid(arena);
  // What the guest uses is lent, the rest of the guest is blocked.
  REQUIRE(StateAt(host->at()) == BlockState::kLent);
  REQUIRE(StateAt(host->at() + kMiB) == BlockState::kLent);
  REQUIRE(StateAt(guest->at + 512 * kKiB) == BlockState::kBlocked);
  REQUIRE(arena.TryAllocateAt(guest->at + 512 * kKiB, 64 * kKiB) == nullptr);
  REQUIRE(arena.TryAllocateAt(host->at(), 64 * kKiB) == nullptr);
  // What is free in the host is free, at the host's address.
  Block* between = arena.TryAllocateAt(host->at() + 256 * kKiB, 256 * kKiB);
  REQUIRE(between != nullptr);

  arena.Free(hosted, 1, /*keep=*/false);
  arena.Free(between, 1, /*keep=*/false);
  REQUIRE_FALSE(host->is_idle());
  arena.Free(low, 2, /*keep=*/false);
  RequireValid(arena);
  REQUIRE(StateAt(host->at()) == BlockState::kReady);
  REQUIRE(StateAt(guest->at) == BlockState::kBlocked);
  arena.Free(high, 3, /*keep=*/false);
  RequireValid(arena);
  // A dead guest is a shadow that waits for being unmapped; the memory is the host's alone.
  REQUIRE(StateAt(guest->at) == BlockState::kShadow);
  REQUIRE(PointerIndex::Get().FindContaining(guest->at)->bytes == kGranule);
  REQUIRE(host->is_idle());
  REQUIRE(host->mappings->idle_epoch == 3);
  REQUIRE(arena.TryAllocateAt(host->at(), kGranule) != nullptr);
  f.Unmap(guest);
  REQUIRE(f.records().guests == 0);
  RequireValid(arena);
}

TEST_CASE("a block across two guests gives each its part back", "[aliases]") {
  ArenaFixture f(16);
  Arena& arena = f.arena();
  f.Map(0, 1);
  f.Map(1, 1);
  Handle* hosts[] = {f.Map(4, 1), f.Map(8, 1)};
  Block* across = arena.TryAllocateAt(f.begin() + kMiB, kGranule);
  Block* front = arena.TryAllocateAt(f.begin() + 4 * kGranule, kMiB);
  Block* back = arena.TryAllocateAt(f.begin() + 8 * kGranule + kMiB, kMiB);
  f.Merge(f.handles()[0]->mappings, hosts[0]->mappings);
  f.Merge(f.handles()[1]->mappings, hosts[1]->mappings);
  RequireValid(arena);
  REQUIRE(arena.TryAllocate(kMiB, 512) == nullptr);
  arena.Free(across, 1, /*keep=*/true);
  REQUIRE(arena.TryAllocate(kGranule, 512) == across);  // as any block that was kept
  arena.Free(across, 2, /*keep=*/false);
  RequireValid(arena);
  REQUIRE(StateAt(f.begin()) == BlockState::kShadow);
  REQUIRE(StateAt(f.begin() + kGranule) == BlockState::kShadow);
  arena.Free(front, 3, /*keep=*/false);
  arena.Free(back, 3, /*keep=*/false);
  REQUIRE(hosts[0]->is_idle());
  REQUIRE(hosts[1]->is_idle());
  RequireValid(arena);
}

TEST_CASE("what is freed during a merge stays as it is until its end", "[aliases]") {
  ArenaFixture f(16);
  Arena& arena = f.arena();
  f.Map(0, 1);
  Block* a = arena.TryAllocate(kMiB, 512);
  Block* b = arena.TryAllocate(kMiB, 512);
  f.records().merging = true;
  arena.Free(a, 4, /*keep=*/true);
  arena.Free(b, 5, /*keep=*/true);
  REQUIRE(arena.TryAllocate(kMiB, 512) == nullptr);
  RequireValid(arena);
  Arena::EndMerging(&f.records());
  RequireValid(arena);
  REQUIRE(f.handles()[0]->mappings->idle_epoch == 5);
  REQUIRE(arena.TryAllocate(kGranule, 512) != nullptr);
}

namespace {

// An arena with aliases and guests, and who uses each 512 bytes of physical memory.
class AliasModel {
 public:
  explicit AliasModel(uint64_t seed) : random_(seed), f_(kSpace) {
    for (uint64_t i = 0; i < 12; ++i) f_.Map(i, 1);
    for (const auto& h : f_.handles()) users_[h.get()].resize(kGranule / 512, nullptr);
  }

  void Step() {
    const uint64_t pick = random_() % 100;
    if (pick < 45) {
      Allocate();
    } else if (pick < 85) {
      Free();
    } else if (pick < 91) {
      AddAlias();
    } else if (pick < 96) {
      Unmap();
    } else {
      Merge();
    }
    RequireValid(f_.arena());
  }
  void End() {
    while (!live_.empty()) Free();
    f_.arena().FlushKept();
    for (const auto& h : f_.handles()) REQUIRE(h->is_idle());
    RequireValid(f_.arena());
  }
  int merges() const { return merges_; }
  int aliases() const { return aliases_; }

 private:
  static constexpr uint64_t kSpace = 48;

  // Changes the user of the block's memory.
  void Pass(const Block& block, const Block* from, const Block* to) {
    uint64_t wrong = 0;
    Arena::ForEachMapping(block.begin, block.end(), nullptr, [&](const Mapping* m) {
      std::vector<const Block*>& users = users_[m->handle];
      const uint64_t begin = std::max(block.begin, m->at),
                     end = std::min(block.end(), m->at + m->bytes);
      for (uint64_t at = begin; at < end; at += 512) {
        wrong += std::exchange(users[(at - m->at) / 512], to) == from ? 0 : 1;
      }
    });
    REQUIRE(wrong == 0);
  }
  void Allocate() {
    const uint64_t bytes = 512 * (65 + random_() % (random_() % 3 == 0 ? 8000 : 1500));
    Block* block = nullptr;
    if (random_() % 3 == 0) {
      block = f_.arena().TryAllocateAt(
          f_.begin() + AlignDown(random_() % (kSpace * kGranule), 128 * kKiB), bytes);
    }
    if (block == nullptr) block = f_.arena().TryAllocate(bytes, 512);
    if (block == nullptr) return;
    Pass(*block, nullptr, block);
    live_.push_back(block);
  }
  void Free() {
    if (live_.empty()) return;
    std::swap(live_[random_() % live_.size()], live_.back());
    Block* block = live_.back();
    live_.pop_back();
    Pass(*block, block, nullptr);
    f_.arena().Free(block, ++epoch_, random_() % 2 == 0);
  }
  void AddAlias() {
    Handle* handle = f_.handles()[random_() % f_.handles().size()].get();
    const uint64_t granule = random_() % kSpace;
    if (PointerIndex::Get().FindMapping(f_.begin() + granule * kGranule) != nullptr) return;
    if (handle->mappings != nullptr && f_.records().guests > 0) return;  // as DropAliases sees to
    f_.MapAt(handle, granule);
    ++aliases_;
  }
  void Unmap() {
    f_.arena().FlushKept();
    Handle* handle = f_.handles()[random_() % f_.handles().size()].get();
    if (handle->mappings == nullptr) return;
    std::vector<Mapping*> unused;
    for (Mapping* m = handle->mappings->next; m != nullptr; m = m->next) {
      if (m->live == 0) unused.push_back(m);
    }
    if (!unused.empty()) f_.Unmap(unused[random_() % unused.size()]);
  }
  void Merge() {
    f_.arena().FlushKept();
    std::vector<PartGranule> parts;
    for (const auto& h : f_.handles()) {
      while (h->mappings != nullptr && h->mappings->next != nullptr &&
             h->mappings->next->live == 0) {
        f_.Unmap(h->mappings->next);
      }
      if (const auto part = DescribeGranule(*h, kGranule)) parts.push_back(*part);
    }
    for (const ::weir::Merge& merge : PlanMerges(parts, 2)) {
      auto &from = users_[merge.guest->handle], &to = users_[merge.host->handle];
      f_.Merge(merge.guest, merge.host);
      uint64_t wrong = 0;
      for (size_t i = 0; i < from.size(); ++i) {
        if (from[i] == nullptr) continue;
        wrong += to[i] == nullptr ? 0 : 1;
        to[i] = std::exchange(from[i], nullptr);
      }
      REQUIRE(wrong == 0);
      ++merges_;
    }
  }

  std::mt19937_64 random_;
  ArenaFixture f_;
  std::map<const Handle*, std::vector<const Block*>> users_;
  std::vector<Block*> live_;
  Epoch epoch_ = 0;
  int merges_ = 0, aliases_ = 0;
};

}  // namespace

TEST_CASE("random use with aliases and guests never gives a physical byte to two blocks",
          "[aliases]") {
  const uint64_t seed = test::Seed();
  int merges = 0, aliases = 0;
  for (uint64_t round = 0; round < 4; ++round) {
    AliasModel model(seed + round);
    for (int step = 0; step < 2500; ++step) model.Step();
    model.End();
    merges += model.merges();
    aliases += model.aliases();
  }
  REQUIRE(merges > 0);
  REQUIRE(aliases > 0);
}

}  // namespace weir
