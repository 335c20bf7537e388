// Graphs on the memory of capture pools: a replay finds its memory as it left it, whatever the
// program does meanwhile; released memory waits for graphs that run.
#include <deque>
#include <map>
#include <random>

#include "tests/pool/capture_fixture.h"
#include "tests/support/seed.h"

namespace weir {
namespace {

using test::CaptureFixture;

sim::Config Device(uint64_t mib) {
  sim::Config config;
  config.memory_bytes = mib * kMiB;
  return config;
}

// A captured chain: input -> intermediate blocks of many sizes, freed inside the capture and reused
// there -> output, which stays allocated. Each step adds one.
class Chain {
 public:
  static constexpr uint64_t kInputBytes = 3000;
  static constexpr uint64_t kOutputBytes = 700000;

  // The input lies in ordinary memory.
  Chain(CaptureFixture& f, uint64_t pool, CUstream stream) : f_(f), stream_(stream) {
    input_ = f.Allocate(kInputBytes, stream);
    f.Begin(pool);
    f.BeginCapture(stream);
    uint64_t from = input_, from_bytes = kInputBytes;
    // Each size twice and with another in between, so that freed blocks are used again.
    for (const uint64_t bytes : {uint64_t{2000}, 300 * kKiB, 5 * kMiB, uint64_t{2000}, 100 * kKiB,
                                 300 * kKiB, 100 * kKiB, 5 * kMiB, uint64_t{700}}) {
      const uint64_t to = f.Allocate(bytes, stream);
      intermediate_.insert({to, bytes});
      Step(from, from_bytes, to, bytes);
      from = to;
      from_bytes = bytes;
    }
    output_ = f.Allocate(kOutputBytes, stream);
    Step(from, from_bytes, output_, kOutputBytes);
    exec_ = f.EndCapture(stream);
    f.End(pool);
  }

  // Runs the graph and checks what it computes.
  void Replay(uint8_t value) {
    f_.Fill(stream_, input_, kInputBytes, value);
    f_.LaunchGraph(exec_, stream_);
    f_.CheckNow(stream_, output_, kOutputBytes, static_cast<uint8_t>(value + steps_));
  }
  void Launch() { f_.LaunchGraph(exec_, stream_); }
  void Free() {
    f_.FreeAsync(input_, stream_);
    f_.FreeAsync(output_, stream_);
  }

  // Whether a range has bytes in common with memory that the graph writes.
  bool Touches(uint64_t at, uint64_t bytes) const {
    const auto touches = [&](uint64_t begin, uint64_t size) {
      return at < begin + size && begin < at + bytes;
    };
    return touches(output_, kOutputBytes) ||
           std::any_of(intermediate_.begin(), intermediate_.end(),
                       [&](const auto& block) { return touches(block.first, block.second); });
  }
  size_t intermediate_blocks() const { return intermediate_.size(); }
  uint64_t input() const { return input_; }
  uint64_t output() const { return output_; }
  int steps() const { return steps_; }

 private:
  void Step(uint64_t from, uint64_t from_bytes, uint64_t to, uint64_t to_bytes) {
    f_.Next(stream_, from, from_bytes, to, to_bytes);
    if (from != input_) f_.FreeAsync(from, stream_);
    ++steps_;
  }

  CaptureFixture& f_;
  const CUstream stream_;
  uint64_t input_ = 0, output_ = 0;
  int steps_ = 0;
  std::map<uint64_t, uint64_t> intermediate_;
  CUgraphExec exec_ = nullptr;
};

// Ordinary use of several streams, until memory runs short and beyond; every block keeps its value.
class Traffic {
 public:
  Traffic(CaptureFixture& f, std::vector<CUstream> streams, uint64_t seed)
      : f_(f), streams_(std::move(streams)), random_(seed) {}

  // `forbidden`: memory that must not be handed out.
  void Run(int steps, const Chain* forbidden) {
    for (int i = 0; i < steps; ++i) {
      const uint64_t pick = random_() % 100;
      if (pick < 55 || live_.empty()) {
        Allocate(1 + random_() % (uint64_t{1} << (random_() % 24)), forbidden);
      } else if (pick < 97) {
        Free();
      } else if (pick < 98) {
        sim::RunUntilIdle();
      } else if (pick < 99) {
        REQUIRE(f_.heap().Trim(random_() % (64 * kMiB)).ok());
      } else {
        REQUIRE(f_.heap().EmptyCache().ok());
      }
    }
  }
  // Takes all that can be had in blocks of this size.
  void Exhaust(uint64_t bytes, const Chain* forbidden) {
    for (const int before = out_of_memory_; out_of_memory_ == before;) {
      Allocate(bytes, forbidden);
    }
  }
  void FreeAll() {
    while (!live_.empty()) Free();
  }

 private:
  struct Live {
    uint64_t bytes;
    CUstream stream;
    bool any;
    uint8_t value;
  };

  void Allocate(uint64_t bytes, const Chain* forbidden) {
    Live live{bytes, streams_[random_() % streams_.size()], random_() % 8 == 0,
              static_cast<uint8_t>(random_())};
    HeapError error;
    const uint64_t at =
        f_.heap().Allocate(bytes, kBlockAlignment, live.any ? kAnyStream : live.stream, &error);
    if (at == 0) {
      INFO(error.text);
      REQUIRE(error.code == WEIR_ERROR_OUT_OF_MEMORY);
      ++out_of_memory_;
      if (!live_.empty()) Free();
      return;
    }
    REQUIRE(f_.PoolOf(at) == 0);
    if (forbidden != nullptr) REQUIRE_FALSE(forbidden->Touches(at, bytes));
    f_.Fill(live.stream, at, bytes, live.value);
    live_[at] = live;
  }
  void Free() {
    auto it = live_.lower_bound(live_.begin()->first + random_() % (256 * kMiB));
    if (it == live_.end()) it = live_.begin();
    const auto [at, live] = *it;
    live_.erase(it);
    values_.push_back(live.value);
    f_.Check(live.stream, at, live.bytes, &values_.back());
    if (live.any || random_() % 10 == 0) {
      f_.Free(at);
    } else {
      f_.FreeAsync(at, live.stream);
    }
  }

  CaptureFixture& f_;
  const std::vector<CUstream> streams_;
  std::mt19937_64 random_;
  std::map<uint64_t, Live> live_;
  std::deque<uint8_t> values_;  // for work that has not run yet
  int out_of_memory_ = 0;
};

TEST_CASE("a captured graph replays on its memory, which nobody else is ever given",
          "[capture][graph]") {
  const uint64_t seed = test::Seed();
  const bool vmm = GENERATE(true, false);
  sim::Config config = Device(vmm ? 96 : 256);  // segments cannot move, and so fit less
  config.seed = seed;
  config.vmm = vmm;
  CaptureFixture f(config);
  const CUstream s = f.NewStream(), t = f.NewStream(), u = f.NewStream();
  // Idle memory lies about when the capture begins.
  Traffic traffic(f, {s, t, u}, seed);
  traffic.Run(300, nullptr);
  const uint64_t pool = f.NewPool();
  Chain chain(f, pool, s);
  REQUIRE(chain.intermediate_blocks() < 9);  // memory was used again inside the capture
  for (uint8_t round = 0; round < 30; ++round) {
    traffic.Run(60, &chain);
    if (round % 4 == 0) traffic.Exhaust(round % 8 == 0 ? 100 * kKiB : 4 * kMiB, &chain);
    chain.Replay(round);
    if (round % 8 == 0) f.RequireValid();
  }
  if (vmm) REQUIRE(f.Stats().remapped_bytes > 0);
  REQUIRE(f.mismatches() == 0);
  traffic.FreeAll();
  f.RequireNoRaces();
  REQUIRE(f.mismatches() == 0);
  chain.Free();
  f.Release(pool);
  REQUIRE(f.heap().EmptyCache().ok());
  f.RequireValid();
  REQUIRE(sim::UsedBytes(0) == 0);
}

TEST_CASE("memory that a capture used recurs in no other stream, though all else is taken",
          "[capture][graph]") {
  CaptureFixture f(Device(64));
  const CUstream s = f.NewStream(), t = f.NewStream();
  const uint64_t pool = f.NewPool();
  Chain chain(f, pool, s);
  // Everything that can be had, in pieces of every size.
  std::vector<std::pair<uint64_t, uint64_t>> blocks;
  for (uint64_t bytes = 8 * kMiB; bytes >= 512; bytes /= 4) {
    HeapError error;
    while (const uint64_t at = f.heap().Allocate(bytes, kBlockAlignment, t, &error)) {
      blocks.emplace_back(at, bytes);
      REQUIRE_FALSE(chain.Touches(at, bytes));
      f.Fill(t, at, bytes, 77);
    }
    REQUIRE(error.code == WEIR_ERROR_OUT_OF_MEMORY);
  }
  for (uint8_t i = 0; i < 5; ++i) chain.Replay(i);
  const uint8_t value = 77;
  for (const auto& [at, bytes] : blocks) f.Check(t, at, bytes, &value);
  f.RequireNoRaces();
  REQUIRE(f.mismatches() == 0);
}

TEST_CASE("two captures share a pool: the second uses what the first has freed",
          "[capture][graph]") {
  CaptureFixture f;
  const CUstream s = f.NewStream();
  const uint64_t pool = f.NewPool();
  Chain first(f, pool, s);
  const uint64_t reserved = f.Stats().reserved_bytes;
  Chain second(f, pool, s);
  // Only the second output is new: a granule or none.
  REQUIRE(f.Stats().reserved_bytes <= reserved + 2 * kMiB);
  REQUIRE(first.output() != second.output());
  for (uint8_t i = 0; i < 4; ++i) {
    first.Replay(i);
    second.Replay(static_cast<uint8_t>(i + 100));
    f.CheckNow(s, first.output(), Chain::kOutputBytes, static_cast<uint8_t>(i + first.steps()));
  }
  f.RequireNoRaces();
}

TEST_CASE("released memory is ordinary again, but not before running graphs are complete",
          "[capture][graph]") {
  const bool live_at_release = GENERATE(false, true), for_any_stream = GENERATE(false, true);
  CaptureFixture f(Device(64));
  const CUstream s = f.NewStream(), t = f.NewStream();
  const Stream owner = for_any_stream ? kAnyStream : s;
  const uint64_t pool = f.NewPool();
  f.Begin(pool);
  f.BeginCapture(s);
  const uint64_t a = f.Allocate(40 * kMiB, owner);
  f.Write(s, a, 40 * kMiB, "captured write");
  if (!live_at_release) f.FreeAsync(a, owner);
  const CUgraphExec exec = f.EndCapture(s);
  f.End(pool);
  sim::RunUntilIdle();
  REQUIRE(f.heap().EmptyCache().ok());  // learns that all this is complete
  // On another stream than the captured one: only a marker of the context covers it.
  const CUstream runs_on = f.NewStream();
  sim::HoldStream(0, runs_on);
  f.LaunchGraph(exec, runs_on);
  f.Release(pool);
  if (live_at_release) f.FreeAsync(a, owner);
  HeapError error;
  // Needs the pool's pages; waiting for them never ends while the stream is held.
  REQUIRE(f.heap().Allocate(40 * kMiB, kBlockAlignment, t, &error) == 0);
  const uint64_t small = f.Allocate(10 * kMiB, t);
  f.Write(t, small, 10 * kMiB);
  sim::ReleaseStream(0, runs_on);
  f.FreeAsync(small, t);
  const uint64_t b = f.Allocate(40 * kMiB, t);
  f.Write(t, b, 40 * kMiB);
  f.RequireNoUnorderedAccess();
  f.RequireValid();
}

TEST_CASE("outputs of a graph outlive the pool and can still be used and freed",
          "[capture][graph]") {
  CaptureFixture f;
  const CUstream s = f.NewStream(), t = f.NewStream();
  const uint64_t pool = f.NewPool();
  Chain chain(f, pool, s);
  chain.Replay(5);
  f.Release(pool);
  f.CheckNow(s, chain.output(), Chain::kOutputBytes, static_cast<uint8_t>(5 + chain.steps()));
  // Its neighbours are ordinary memory now, it is not.
  REQUIRE(f.heap().EmptyCache().ok());
  f.FreeAsync(f.Allocate(100 * kMiB, t), t);
  f.CheckNow(s, chain.output(), Chain::kOutputBytes, static_cast<uint8_t>(5 + chain.steps()));
  REQUIRE(f.heap().RecordUse(chain.output(), t).ok());
  chain.Free();
  REQUIRE(f.heap().EmptyCache().ok());
  f.RequireNoRaces();
  f.RequireValid();
  REQUIRE(sim::UsedBytes(0) == 0);
}

TEST_CASE("pools that come and go leave no memory and no addresses taken", "[capture]") {
  CaptureFixture f(Device(256));
  const CUstream s = f.NewStream();
  for (int i = 0; i < 3000; ++i) {
    const uint64_t pool = f.NewPool();
    f.Begin(pool);
    f.FreeAsync(f.Allocate(2000, s), s);
    f.FreeAsync(f.Allocate(3 * kMiB, s), s);
    f.End(pool);
    f.Release(pool);
  }
  REQUIRE(f.heap().EmptyCache().ok());
  REQUIRE(sim::UsedBytes(0) == 0);
  f.RequireValid();
}

}  // namespace
}  // namespace weir
