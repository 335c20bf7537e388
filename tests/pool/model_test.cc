// Random operations against a naive model: contents, order, accounting.
#include <cstdlib>
#include <map>
#include <random>

#include "tests/pool/heap_fixture.h"
#include "tests/pool/preset.h"
#include "tests/support/seed.h"

namespace weir {
namespace {

using test::HeapFixture;

// What the model knows of a live block.
struct Model {
  uint64_t bytes;
  Stream stream;
  uint8_t pattern;
};

class ModelRun {
 public:
  ModelRun(HeapFixture& f, uint64_t seed) : f_(f), random_(seed) {
    for (int i = 0; i < 3; ++i) streams_.push_back(f.NewStream());
    streams_.push_back(nullptr);
  }

  void Step() {
    const uint64_t pick = random_() % 100;
    if (pick < 50 || live_.empty()) {
      Allocate();
    } else if (pick < 90) {
      Free();
    } else if (pick < 96) {
      Use();
    } else if (pick < 98) {
      sim::RunUntilIdle();
    } else if (random_() % 8 == 0) {
      ReplaceStream();
    } else if (pick < 99) {
      REQUIRE(f_.heap().Trim(random_() % (64 * kMiB)).ok());
    } else {
      REQUIRE(f_.heap().EmptyCache().ok());
    }
  }
  void FreeAll() {
    while (!live_.empty()) Free();
  }
  void RequireAccounts() {
    const weir_stats_t s = f_.Stats();
    uint64_t requested = 0;
    for (const auto& [at, m] : live_) requested += m.bytes;
    REQUIRE(s.requested_bytes == requested);
    REQUIRE(s.allocations == live_.size());
    REQUIRE(s.reserved_bytes == sim::UsedBytes(0));
    borrowed_ = s.borrowed_blocks;
  }
  int mismatches() const { return mismatches_; }
  uint64_t borrowed() const { return borrowed_; }

 private:
  Stream RandomStream() { return streams_[random_() % streams_.size()]; }

  void Allocate() {
    const int log2 = static_cast<int>(random_() % 24);
    const uint64_t bytes = 1 + random_() % (uint64_t{1} << log2);
    const Stream stream = random_() % 8 == 0 ? kAnyStream : RandomStream();
    HeapError error;
    const uint64_t at = f_.heap().Allocate(bytes, 512, stream, &error);
    if (at == 0) {
      REQUIRE(error.code == WEIR_ERROR_OUT_OF_MEMORY);
      return;
    }
    const auto next = live_.lower_bound(at);
    if (next != live_.end()) REQUIRE(at + bytes <= next->first);
    if (next != live_.begin())
      REQUIRE(std::prev(next)->first + std::prev(next)->second.bytes <= at);
    const Model m{bytes, stream, static_cast<uint8_t>(random_())};
    live_[at] = m;
    WriteEnds(WorkStream(m), at, m);
  }
  void Use() {
    auto it = Pick();
    const Stream user = RandomStream();
    if (it->second.stream == kAnyStream || user == WorkStream(it->second)) return;
    f_.device().OrderAfter(WorkStream(it->second), user);
    CheckEnds(user, it->first, it->second);
    REQUIRE(f_.heap().RecordUse(it->first, user).ok());
  }
  void Free() {
    auto it = Pick();
    const auto [at, m] = *it;
    live_.erase(it);
    CheckEnds(WorkStream(m), at, m);
    if (m.stream == kAnyStream || random_() % 10 == 0) {
      REQUIRE(f_.heap().Free(at).ok());
    } else if (random_() % 10 == 0) {
      const Stream other = RandomStream();
      f_.device().OrderAfter(WorkStream(m), other);
      REQUIRE(f_.heap().FreeAsync(at, other).ok());
    } else {
      REQUIRE(f_.heap().FreeAsync(at, m.stream).ok());
    }
  }

  // A stream is destroyed while blocks of it live and work is queued; its handle's value may come
  // back. What it wrote is used on the legacy stream from then on.
  void ReplaceStream() {
    Stream& stream = streams_[random_() % 3];
    f_.device().OrderAfter(stream, nullptr);
    REQUIRE(f_.heap().StreamDestroyed(stream).ok());
    for (auto& [at, m] : live_) {
      if (m.stream == stream) m.stream = kAnyStream;
    }
    f_.device().DestroyStream(stream);
    stream = f_.NewStream();
  }

  std::map<uint64_t, Model>::iterator Pick() {
    auto it = live_.lower_bound(random_() % 2 == 0 ? last_ : random_());
    if (it == live_.end()) it = live_.begin();
    std::advance(it, random_() % std::min<uint64_t>(live_.size(), 8));
    if (it == live_.end()) it = live_.begin();
    last_ = it->first;
    return it;
  }
  // Blocks for any stream are used on the legacy stream here.
  static Stream WorkStream(const Model& m) { return m.stream == kAnyStream ? nullptr : m.stream; }

  void WriteEnds(Stream stream, uint64_t at, const Model& m) {
    const uint8_t pattern = m.pattern;
    const uint64_t last = at + m.bytes - 1;
    REQUIRE(sim::Launch(stream, "write", {{at, 1, true}, {last, 1, true}},
                        [=](sim::KernelMemory& memory) {
                          memory.Write(at, &pattern, 1);
                          memory.Write(last, &pattern, 1);
                        }) == CUDA_SUCCESS);
  }
  void CheckEnds(Stream stream, uint64_t at, const Model& m) {
    const uint8_t pattern = m.pattern;
    const uint64_t last = at + m.bytes - 1;
    REQUIRE(sim::Launch(stream, "check", {{at, 1, false}, {last, 1, false}},
                        [=, this](sim::KernelMemory& memory) {
                          uint8_t low = 0, high = 0;
                          memory.Read(at, &low, 1);
                          memory.Read(last, &high, 1);
                          if (low != pattern || high != pattern) ++mismatches_;
                        }) == CUDA_SUCCESS);
  }

  HeapFixture& f_;
  std::mt19937_64 random_;
  std::vector<Stream> streams_;
  std::map<uint64_t, Model> live_;
  uint64_t last_ = 0;
  int mismatches_ = 0;
  uint64_t borrowed_ = 0;
};

// WEIR_TEST_NIGHTLY: the programs are ten times as long.
int Steps(int steps) { return std::getenv("WEIR_TEST_NIGHTLY") != nullptr ? 10 * steps : steps; }

// Returns how many blocks were borrowed.
uint64_t Run(const sim::Config& config, const HeapOptions& options, uint64_t seed, int steps) {
  HeapFixture f(config, options);
  ModelRun run(f, seed);
  for (int i = 0; i < steps; ++i) {
    run.Step();
    if (i % 64 == 0) {
      f.RequireValid();
      run.RequireAccounts();
    }
  }
  run.FreeAll();
  REQUIRE(f.heap().EmptyCache().ok());
  f.RequireValid();
  REQUIRE(sim::UsedBytes(0) == 0);
  f.RequireNoRaces();
  REQUIRE(run.mismatches() == 0);
  return run.borrowed();
}

}  // namespace

TEST_CASE("random use on several streams keeps contents, order and accounts", "[model]") {
  const uint64_t seed = test::Seed();
  uint64_t borrowed = 0;
  for (uint64_t round = 0; round < 8; ++round) {
    sim::Config config;
    config.seed = seed + round;
    config.memory_bytes = (round % 2 == 0 ? 96 : 400) * kMiB;
    config.run_ahead = round < 4 ? 16 : 2000;
    INFO("round " << round);
    HeapOptions options;
    if (round % 4 == 3) options.borrow = Borrowing::kSmall;
    if (round == 5) options.thread_cache_bytes = 0;
    borrowed += Run(config, options, seed + round, Steps(12000));
  }
  REQUIRE(borrowed > 0);
}

TEST_CASE("random use under the presets keeps contents, order and accounts", "[model]") {
  const char* conf = GENERATE(values<const char*>({"mode:tight", "mode:serving"}));
  const uint64_t seed = test::Seed();
  for (uint64_t round = 0; round < 3; ++round) {
    INFO(conf << ", round " << round);
    sim::Config config;
    config.seed = seed + round;
    config.memory_bytes = (round < 2 ? 96 : 400) * kMiB;
    config.run_ahead = round == 0 ? 16 : 2000;
    Run(config, test::OptionsFrom(conf), seed + round, Steps(4000));
  }
}

TEST_CASE("random use without memory mapping keeps contents, order and accounts", "[model]") {
  const uint64_t seed = test::Seed();
  sim::Config config;
  config.seed = seed;
  config.vmm = false;
  config.memory_bytes = 200 * kMiB;
  Run(config, {}, seed, Steps(6000));
}

TEST_CASE("random use without context events keeps contents, order and accounts", "[model]") {
  const uint64_t seed = test::Seed();
  sim::Config config;
  config.seed = seed;
  config.driver_version = 12040;
  config.memory_bytes = 200 * kMiB;
  Run(config, {}, seed, Steps(6000));
}

}  // namespace weir
