// What a heap shows of itself, after every step of random programs, against a naive model and
// against the statistics.
#include <cstdlib>
#include <random>
#include <set>

#include "tests/pool/inspect_fixture.h"
#include "tests/pool/preset.h"
#include "tests/support/seed.h"

namespace weir {
namespace {

using test::HeapFixture;
using test::OptionsFrom;
using test::Show;
using test::Shown;
using test::ShownSegment;

constexpr uint64_t kPools = 2;

// What the model knows of a live block.
struct Held {
  uint64_t bytes;
  Stream stream;
  uint64_t pool;
};

// What was seen, so that a program that shows nothing of interest fails.
struct Seen {
  uint64_t pending = 0, borrowed = 0, pools = 0, aliased = 0, merged = 0, gone = 0;
};

enum class Kind { kMixed, kCompacting, kLarge };

class InspectRun {
 public:
  InspectRun(HeapFixture& f, uint64_t seed, Kind kind, Seen* seen)
      : f_(f), random_(seed), kind_(kind), seen_(*seen) {
    for (int i = 0; i < 3; ++i) streams_.push_back(f.NewStream());
    streams_.push_back(nullptr);
  }

  void Step() {
    const uint64_t pick = random_() % 1000;
    const uint64_t allocate = (steps_++ / 200) % 2 == 0 ? 560 : 380;
    if (live_.empty() || pick < allocate) {
      Allocate();
    } else if (pick < 900) {
      Free();
    } else if (pick < 940) {
      auto it = Pick();
      REQUIRE(f_.heap().RecordUse(it->first, RandomStream()).ok());
    } else if (pick < 960) {
      sim::RunUntilIdle();
    } else if (pick < 970) {
      REQUIRE(f_.heap().Trim(random_() % (64 * kMiB)).ok());
    } else if (pick < 974) {
      f_.heap().ResetPeaks();
    } else if (pick < 978) {
      ReplaceStream();
    } else if (pick < 990) {
      ChangePool();
    } else if (kind_ == Kind::kCompacting) {
      Compact();
    }
  }

  void Check() {
    const Shown shown = Show(f_.heap());
    REQUIRE(test::WhatIsWrongIn(shown) == "");
    test::RequireStatsAreShown(f_.heap(), shown);
    size_t allocated = 0;
    for (const ShownSegment& s : shown) {
      seen_.pools += s.info.pool != 0 ? 1 : 0;
      seen_.gone += s.info.stream == WEIR_NO_STREAM ? 1 : 0;
      for (const weir_block_info_t& b : s.blocks) {
        if (b.state == WEIR_BLOCK_ALLOCATED) ++allocated;
        CheckBlock(s, b);
      }
    }
    REQUIRE(allocated == live_.size());
    CheckMemoryIsShownOnce(shown);
    CheckFinding(shown);
  }

  void FreeAll() {
    while (!live_.empty()) Free();
  }

 private:
  Stream RandomStream() { return streams_[random_() % streams_.size()]; }

  void Allocate() {
    uint64_t bytes = random_() % (uint64_t{1} << (random_() % 23));
    Stream stream = random_() % 8 == 0 ? kAnyStream : RandomStream();
    if (kind_ == Kind::kLarge) {  // ends of pages stay free, which others can share
      bytes = 600 * kKiB + random_() % (5 * kMiB);
      if (random_() % 16 > 0) stream = streams_[0];
    }
    HeapError error;
    const uint64_t at = f_.heap().Allocate(bytes, 512, stream, &error);
    if (at == 0) {
      REQUIRE(error.code == WEIR_ERROR_OUT_OF_MEMORY);
      return;
    }
    REQUIRE(live_.emplace(at, Held{bytes, stream, route_}).second);
    // So that what is freed has something to wait for.
    if (random_() % 4 == 0 && bytes > 0) f_.Write(RandomStreamOf(stream), at, 1);
  }
  Stream RandomStreamOf(Stream stream) const { return stream == kAnyStream ? nullptr : stream; }

  void Free() {
    const auto it = Pick();
    const auto [at, held] = *it;
    live_.erase(it);
    freed_[at] = held.bytes;
    const uint64_t way = random_() % 10;
    const bool is_stream = held.stream != kAnyStream && held.stream != kNoStream;
    if (way == 0 || !is_stream) {
      REQUIRE(f_.heap().Free(at).ok());
    } else if (way == 1) {
      REQUIRE(f_.heap().FreeAsync(at, RandomStream()).ok());
    } else if (way < 5) {
      REQUIRE(f_.heap().FreeOrdered(at).ok());
    } else {
      REQUIRE(f_.heap().FreeAsync(at, held.stream).ok());
    }
  }

  void ReplaceStream() {
    Stream& stream = streams_[random_() % 3];
    REQUIRE(f_.heap().StreamDestroyed(stream).ok());
    for (auto& [at, held] : live_) {
      if (held.stream == stream) held.stream = kNoStream;
    }
    f_.device().DestroyStream(stream);
    stream = f_.NewStream();
  }

  void ChangePool() {
    const uint64_t id = 1 + random_() % kPools;
    if (route_ != 0) {
      REQUIRE(f_.heap().EndRoute(route_).ok());
      route_ = 0;
    } else if (!pools_.contains(id)) {
      REQUIRE(f_.heap().CreatePool(id).ok());
      pools_.insert(id);
    } else if (random_() % 3 > 0) {
      REQUIRE(f_.heap().BeginRoute(id, nullptr, nullptr).ok());
      route_ = id;
    } else {
      REQUIRE(f_.heap().ReleasePool(id).ok());
      pools_.erase(id);
      for (auto& [at, held] : live_) {
        if (held.pool == id) held = {held.bytes, kNoStream, 0};
      }
    }
  }

  void Compact() {
    const weir_compact_options_t options{0, 0, 1, {}};
    weir_compact_result_t result{};
    REQUIRE(f_.heap().Compact(options, &result).ok());
    seen_.merged += result.merged_granules;
  }

  std::map<uint64_t, Held>::iterator Pick() {
    auto it = live_.begin();
    std::advance(it, random_() % live_.size());
    return it;
  }

  void CheckBlock(const ShownSegment& s, const weir_block_info_t& b) {
    if (b.state == WEIR_BLOCK_PENDING) {
      ++seen_.pending;
      const auto freed = freed_.find(b.address);
      REQUIRE(freed != freed_.end());
      REQUIRE(b.requested_bytes == freed->second);
      REQUIRE(!live_.contains(b.address));
    }
    if (b.state != WEIR_BLOCK_ALLOCATED) return;
    const auto held = live_.find(b.address);
    REQUIRE(held != live_.end());
    REQUIRE(b.requested_bytes == held->second.bytes);
    REQUIRE(b.stream == held->second.stream);
    REQUIRE(s.info.pool == held->second.pool);
    REQUIRE(b.bytes == f_.heap().UsableSize(b.address));
    if (b.stream != s.info.stream) ++seen_.borrowed;
  }

  // No byte of a handle is shown at two addresses.
  void CheckMemoryIsShownOnce(const Shown& shown) {
    std::map<std::pair<const Handle*, uint64_t>, uint64_t> ranges;  // by offset, where they end
    for (const ShownSegment& s : shown) {
      if (s.info.is_mapped == 0) continue;
      const uint64_t end = s.info.address + s.info.bytes;
      for (uint64_t at = s.info.address; at < end;) {
        const Mapping* m = PointerIndex::Get().FindMapping(at);
        REQUIRE(m != nullptr);
        const uint64_t until = std::min(end, m->at + m->bytes);
        REQUIRE(ranges.emplace(std::pair{m->handle, at - m->at}, until - m->at).second);
        if (m != m->handle->mappings || m->next != nullptr) ++seen_.aliased;
        at = until;
      }
    }
    for (auto it = ranges.begin(); it != ranges.end(); ++it) {
      const auto next = std::next(it);
      if (next == ranges.end() || next->first.first != it->first.first) continue;
      REQUIRE(it->second <= next->first.second);
    }
  }

  // Some address finds what is shown there, and what is not shown is not found.
  void CheckFinding(const Shown& shown) {
    if (shown.empty()) return;
    const ShownSegment& s = shown[random_() % shown.size()];
    const weir_block_info_t& b = s.blocks[random_() % s.blocks.size()];
    weir_block_info_t block{};
    weir_segment_info_t segment{};
    REQUIRE(f_.heap().FindBlock(b.address + random_() % b.bytes, &block, &segment).ok());
    REQUIRE(block.address == b.address);
    REQUIRE(block.bytes == b.bytes);
    REQUIRE(block.requested_bytes == b.requested_bytes);
    REQUIRE(block.stream == b.stream);
    REQUIRE(block.state == b.state);
    REQUIRE(segment.address == s.info.address);
    REQUIRE(segment.bytes == s.info.bytes);
    REQUIRE(segment.stream == s.info.stream);
    REQUIRE(segment.pool == s.info.pool);
    REQUIRE(segment.is_large == s.info.is_large);
    REQUIRE(segment.is_mapped == s.info.is_mapped);
    const uint64_t end = s.info.address + s.info.bytes;
    const size_t index = static_cast<size_t>(&s - shown.data());
    if (index + 1 < shown.size() && shown[index + 1].info.address == end) return;
    REQUIRE(f_.heap().FindBlock(end, nullptr, nullptr).code == WEIR_ERROR_NOT_OWNED);
  }

  HeapFixture& f_;
  std::mt19937_64 random_;
  const Kind kind_;
  Seen& seen_;
  uint64_t steps_ = 0;
  std::vector<Stream> streams_;
  std::map<uint64_t, Held> live_;
  std::map<uint64_t, uint64_t> freed_;  // what was asked for of the block that lay there last
  std::set<uint64_t> pools_;
  uint64_t route_ = 0;
};

Seen Run(const HeapOptions& options, uint64_t device_bytes, uint64_t seed, int steps,
         Kind kind = Kind::kMixed) {
  sim::Config config;
  config.seed = seed;
  config.memory_bytes = device_bytes;
  config.vmm = options.vmm;
  config.run_ahead = 64;
  HeapFixture f(config, options);
  Seen seen;
  InspectRun run(f, seed, kind, &seen);
  for (int i = 0; i < steps; ++i) {
    INFO("step " << i);
    run.Step();
    run.Check();
  }
  f.RequireValid();
  run.FreeAll();
  run.Check();
  return seen;
}

// WEIR_TEST_NIGHTLY: the programs are ten times as long.
int Steps(int steps) { return std::getenv("WEIR_TEST_NIGHTLY") != nullptr ? 10 * steps : steps; }

TEST_CASE("what is shown is what callers hold and what is counted", "[inspect][model]") {
  const uint64_t seed = test::Seed();
  Seen all;
  for (uint64_t round = 0; round < 4; ++round) {
    INFO("round " << round);
    HeapOptions options;
    if (round == 3) options.thread_cache_bytes = 0;
    const Seen seen = Run(options, (round < 2 ? 48 : 400) * kMiB, seed + round, Steps(1500));
    all.pending += seen.pending;
    all.borrowed += seen.borrowed;
    all.pools += seen.pools;
    all.gone += seen.gone;
  }
  CHECK(all.pending > 0);
  CHECK(all.borrowed > 0);
  CHECK(all.pools > 0);
  CHECK(all.gone > 0);
}

TEST_CASE("memory with several addresses is shown once", "[inspect][model]") {
  const char* conf = GENERATE(values<const char*>(
      {"mode:tight", "mode:serving", "mesh:compact,max_handle:2MiB", "mesh:pressure,boundary:on"}));
  const uint64_t seed = test::Seed();
  uint64_t aliased = 0;
  // Few programs of mode:serving come to share a page.
  for (uint64_t round = 0; round < 2 || (aliased == 0 && round < 30); ++round) {
    INFO(conf << ", round " << round);
    for (const Kind kind : {Kind::kCompacting, Kind::kLarge}) {
      aliased += Run(OptionsFrom(conf), 48 * kMiB, seed + round, Steps(1000), kind).aliased;
    }
  }
  CHECK(aliased > 0);
}

TEST_CASE("classic segments are shown as they are", "[inspect][model]") {
  const uint64_t seed = test::Seed();
  HeapOptions options;
  options.vmm = false;
  Run(options, 200 * kMiB, seed, Steps(1500));
}

}  // namespace
}  // namespace weir
