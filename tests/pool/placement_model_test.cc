// Random programs under each preset, on devices so small that memory is stitched, merged, moved and
// borrowed all the time: every byte of every block is checked before its free.
#include <cstdlib>
#include <deque>
#include <map>
#include <random>

#include "tests/pool/capture_fixture.h"
#include "tests/pool/preset.h"
#include "tests/support/seed.h"

namespace weir {
namespace {

using test::CaptureFixture;

struct Live {
  uint64_t bytes;
  CUstream stream;  // on which it is used
  bool any;         // asked for with kAnyStream
  uint8_t value;
};

// Phases follow each other: a training loop, which asks for the same sizes again and again; random
// blocks of all sizes; and many small blocks of which few survive, as leaves partly used granules.
class Program {
 public:
  Program(CaptureFixture& f, uint64_t seed) : f_(f), random_(seed) {
    for (int i = 0; i < 3; ++i) streams_.push_back(f.NewStream());
  }

  void Phase() {
    switch (random_() % 3) {
      case 0:
        return Loop();
      case 1:
        return Mixed(200);
      default:
        return Shred();
    }
  }
  void End() {
    while (!live_.empty()) Free(live_.begin());
    for (const uint64_t pool : pools_) f_.Release(pool);
  }

 private:
  using Map = std::map<uint64_t, Live>;

  CUstream AnyOfStreams() { return streams_[random_() % streams_.size()]; }
  uint64_t RandomBytes(int least_log2, int most_log2) {
    const auto log2 =
        least_log2 + static_cast<int>(random_() % static_cast<uint64_t>(most_log2 - least_log2));
    return (uint64_t{1} << log2) + random_() % (uint64_t{1} << log2);
  }

  uint64_t Allocate(uint64_t bytes, CUstream stream, bool any = false) {
    HeapError error;
    const weir_stats_t before = f_.Stats();
    const uint64_t at =
        f_.heap().Allocate(bytes, kBlockAlignment, any ? kAnyStream : stream, &error);
    Look();
    if (at == 0) {
      INFO(error.text);
      REQUIRE(error.code == WEIR_ERROR_OUT_OF_MEMORY);
      const weir_stats_t after = f_.Stats();
      REQUIRE(after.requested_bytes == before.requested_bytes);
      REQUIRE(after.allocations == before.allocations);
      return 0;
    }
    const auto next = live_.lower_bound(at);
    if (next != live_.end()) REQUIRE(at + bytes <= next->first);
    if (next != live_.begin())
      REQUIRE(std::prev(next)->first + std::prev(next)->second.bytes <= at);
    const Live live{bytes, stream, any, static_cast<uint8_t>(random_())};
    f_.Fill(stream, at, bytes, live.value);
    live_[at] = live;
    return at;
  }
  Map::iterator Free(Map::iterator it) {
    const auto [at, live] = *it;
    values_.push_back(live.value);
    f_.Check(live.stream, at, live.bytes, &values_.back());
    const CUstream other = AnyOfStreams();
    const uint64_t pick = random_() % 20;
    if (live.any || pick == 0) {
      f_.Free(at);
    } else if (pick == 1) {
      f_.OrderAfter(live.stream, other);
      f_.FreeAsync(at, other);
    } else if (pick == 2 && other != live.stream) {
      f_.OrderAfter(live.stream, other);
      f_.Check(other, at, live.bytes, &values_.back());
      REQUIRE(f_.heap().RecordUse(at, other).ok());
      f_.FreeAsync(at, live.stream);
    } else {
      f_.FreeAsync(at, live.stream);
    }
    return live_.erase(it);
  }
  void FreeSome(uint64_t one_in) {
    for (auto it = live_.begin(); it != live_.end();) {
      it = random_() % one_in == 0 ? Free(it) : std::next(it);
    }
  }

  // The same requests in the same order on one stream, freed in the same order, with a little of
  // something else in between.
  void Loop() {
    const CUstream stream = AnyOfStreams();
    FreeSome(random_() % 2 == 0 ? 1 : 2);
    struct Request {
      uint64_t bytes;
      size_t lifetime;
    };
    std::vector<Request> step;
    for (int i = 0; i < 24; ++i) step.push_back({RandomBytes(19, 23), 1 + random_() % 12});
    for (size_t round = 0; round < 16; ++round) {
      std::vector<uint64_t> held(step.size() + 16);
      for (size_t i = 0; i < held.size(); ++i) {
        if (i < step.size()) held[i] = Allocate(step[i].bytes, stream);
        for (size_t k = 0; k < std::min(i, step.size()); ++k) {
          if (held[k] == 0 || k + step[k].lifetime != i) continue;
          Free(live_.find(held[k]));
          held[k] = 0;
        }
      }
      for (const uint64_t at : held) {
        if (at != 0) Free(live_.find(at));
      }
      if (random_() % 3 == 0) Sundries();
    }
  }
  void Mixed(int steps) {
    for (int i = 0; i < steps; ++i) {
      if (live_.empty() || random_() % 100 < 52) {
        Allocate(RandomBytes(6, 23), AnyOfStreams(), random_() % 8 == 0);
      } else {
        auto it = live_.lower_bound(live_.begin()->first + random_() % (256 * kMiB));
        Free(it == live_.end() ? live_.begin() : it);
      }
      if (random_() % 20 == 0) Sundries();
    }
  }
  // Fills the device with blocks of one size, frees most of them, then asks for more than lies
  // together.
  void Shred() {
    FreeSome(1);
    const CUstream stream = AnyOfStreams();
    const uint64_t bytes = RandomBytes(16, 19);
    for (int i = 0; i < 2000; ++i) {
      if (Allocate(bytes, stream) == 0) break;
    }
    for (auto it = live_.begin(); it != live_.end();) {
      it = random_() % 5 != 0 ? Free(it) : std::next(it);
    }
    Sundries();
    for (int i = 0; i < 6; ++i) Allocate(RandomBytes(21, 24), AnyOfStreams());
  }

  void Sundries() {
    const uint64_t pick = random_() % 12;
    if (pick < 3) {
      sim::RunUntilIdle();
    } else if (pick < 5) {
      Allocate(RandomBytes(17, 22), AnyOfStreams(), random_() % 4 == 0);
    } else if (pick < 6) {
      REQUIRE(f_.heap().Trim(random_() % (64 * kMiB)).ok());
    } else if (pick < 9) {
      weir_compact_options_t options{};
      options.keep_bytes = random_() % 2 == 0 ? 0 : random_() % (96 * kMiB);
      options.max_ms = random_() % 2 == 0 ? 0 : 1;
      options.merge = random_() % 4 != 0;
      weir_compact_result_t result{};
      REQUIRE(f_.heap().Compact(options, &result).ok());
    } else if (pick < 10) {
      FreeSome(3);
    } else if (pick < 11) {
      UsePool();
    } else {
      ReplaceStream();
    }
  }
  // A capture pool beside; its blocks are checked and freed like the others.
  void UsePool() {
    if (pools_.size() == 2) {
      f_.Release(pools_.front());
      pools_.erase(pools_.begin());
    }
    pools_.push_back(f_.NewPool());
    f_.Begin(pools_.back());
    const CUstream stream = AnyOfStreams();
    for (int i = 0; i < 4; ++i) Allocate(RandomBytes(9, 21), stream);
    f_.End(pools_.back());
  }
  void ReplaceStream() {
    const size_t index = random_() % streams_.size();
    const CUstream gone = streams_[index], heir = streams_[(index + 1) % streams_.size()];
    f_.OrderAfter(gone, heir);
    REQUIRE(f_.heap().StreamDestroyed(gone).ok());
    for (auto& [at, live] : live_) {
      if (live.stream != gone) continue;
      live.stream = heir;
      live.any = true;  // to be freed with weir_free: the stream is gone
    }
    f_.device().DestroyStream(gone);
    streams_[index] = f_.NewStream();
  }
  void Look() {
    if (++operations_ % 32 != 0) return;
    f_.RequireValid();
    REQUIRE(f_.Stats().reserved_bytes == sim::UsedBytes(0));
  }

  CaptureFixture& f_;
  std::mt19937_64 random_;
  std::vector<CUstream> streams_;
  std::vector<uint64_t> pools_;
  Map live_;
  std::deque<uint8_t> values_;  // for work that has not run yet
  uint64_t operations_ = 0;
};

// Whose program stitches, merges and shares boundaries.
constexpr uint64_t kKnownSeed = 2;

// Runs programs and returns the sums of what they did.
weir_stats_t RunPrograms(const char* conf, uint64_t seed) {
  weir_stats_t sum{};
  const uint64_t rounds = std::getenv("WEIR_TEST_NIGHTLY") != nullptr ? 30 : 2;
  for (uint64_t round = 0; round < rounds; ++round) {
    // One program is always the same, so that what the sums must show does not depend on luck.
    const uint64_t program_seed = round == 0 ? kKnownSeed : seed + round;
    INFO(conf << ", round " << round);
    sim::Config config;
    config.seed = program_seed;
    config.memory_bytes = (round % 2 == 1 ? 128 : 64) * kMiB;
    config.run_ahead = round % 2 == 0 ? 16 : 1000;
    CaptureFixture f(config, test::OptionsFrom(conf));
    Program program(f, program_seed);
    for (int i = 0; i < 5; ++i) program.Phase();
    program.End();
    REQUIRE(f.heap().EmptyCache().ok());
    f.RequireValid();
    const weir_stats_t s = f.Stats();
    REQUIRE(s.active_bytes == 0);
    REQUIRE(sim::UsedBytes(0) == 0);
    f.RequireNoRaces();
    REQUIRE(f.mismatches() == 0);
    sum.stitched_bytes += s.stitched_bytes;
    sum.merged_granules += s.merged_granules;
    sum.remapped_bytes += s.remapped_bytes;
    sum.borrowed_blocks += s.borrowed_blocks;
    sum.shared_blocks += s.shared_blocks;
  }
  return sum;
}

}  // namespace

TEST_CASE("random programs in mode:default keep contents, order and accounts", "[placement]") {
  const weir_stats_t sum = RunPrograms("mode:default", test::Seed());
  REQUIRE(sum.remapped_bytes > 0);
  REQUIRE(sum.stitched_bytes == 0);  // one address for all memory
  REQUIRE(sum.merged_granules == 0);
}

TEST_CASE("random programs in mode:tight keep contents, order and accounts", "[placement]") {
  const weir_stats_t sum = RunPrograms("mode:tight", test::Seed());
  REQUIRE(sum.remapped_bytes > 0);
  REQUIRE(sum.stitched_bytes > 0);
  REQUIRE(sum.merged_granules > 0);
}

TEST_CASE("random programs in mode:serving keep contents, order and accounts", "[placement]") {
  const weir_stats_t sum = RunPrograms("mode:serving", test::Seed());
  REQUIRE(sum.remapped_bytes > 0);
  REQUIRE(sum.shared_blocks > 0);
}

TEST_CASE("random programs with every way of placement keep contents, order and accounts",
          "[placement]") {
  const char* conf = "mode:tight,boundary:on,alias_bound:1,borrow:small,soft_limit_slack:0";
  const weir_stats_t sum = RunPrograms(conf, test::Seed());
  REQUIRE(sum.stitched_bytes > 0);
  REQUIRE(sum.merged_granules > 0);
  REQUIRE(sum.shared_blocks > 0);
}

}  // namespace weir
