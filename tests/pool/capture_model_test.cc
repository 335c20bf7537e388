// Random programs with capture pools: captures, replays, ordinary work in between, releases. What
// graphs compute and what ordinary blocks hold must come out right.
#include <deque>
#include <map>
#include <random>

#include "tests/pool/capture_fixture.h"
#include "tests/pool/preset.h"
#include "tests/support/seed.h"

namespace weir {
namespace {

using test::CaptureFixture;

class Program {
 public:
  Program(CaptureFixture& f, uint64_t seed, uint64_t most_log2)
      : f_(f), random_(seed), most_log2_(most_log2), fork_(f.NewStream()) {
    for (int i = 0; i < 3; ++i) streams_.push_back(f.NewStream());
    streams_.push_back(nullptr);
    for (int i = 0; i < 3; ++i) capture_streams_.push_back(f.NewStream());
  }

  void Step() {
    const uint64_t pick = random_() % 100;
    if (pick < 80) {
      Ordinary();
    } else if (pick < 84) {
      if (pools_.size() < 3) pools_.push_back({f_.NewPool(), Any(capture_streams_)});
    } else if (pick < 90) {
      if (!pools_.empty()) Capture(Any(pools_));
    } else if (pick < 96) {
      if (!graphs_.empty()) Replay(Any(graphs_));
    } else if (pick < 98) {
      if (!graphs_.empty()) Drop(random_() % graphs_.size());
    } else if (pick < 99) {
      if (!pools_.empty()) Release(random_() % pools_.size());
    } else {
      sim::RunUntilIdle();
    }
  }
  void End() {
    while (!graphs_.empty()) Drop(0);
    while (!pools_.empty()) Release(0);
    while (!live_.empty()) Free();
  }
  int replays() const { return replays_; }

 private:
  // Captured and launched on one stream only, because graphs of a pool share its memory.
  struct Pool {
    uint64_t id;
    CUstream stream;
  };
  struct Graph {
    Pool pool;
    CUgraphExec exec;
    uint64_t input, input_bytes, output, output_bytes;
    uint8_t steps;
  };
  struct Live {
    uint64_t bytes;
    CUstream stream;
    bool any;
    uint8_t value;
  };

  template <typename T>
  const T& Any(const std::vector<T>& of) {
    return of[random_() % of.size()];
  }
  uint64_t RandomBytes() { return 1 + random_() % (uint64_t{1} << (random_() % most_log2_)); }
  uint64_t TryAllocate(uint64_t bytes, Stream stream) {
    HeapError error;
    const uint64_t at = f_.heap().Allocate(bytes, kBlockAlignment, stream, &error);
    INFO(error.text);
    if (at == 0) REQUIRE(error.code == WEIR_ERROR_OUT_OF_MEMORY);
    return at;
  }

  // ---- Ordinary memory ----

  void Ordinary() {
    const uint64_t pick = random_() % 100;
    if (pick < 52 || live_.empty()) {
      const Live live{RandomBytes(), Any(streams_), random_() % 8 == 0,
                      static_cast<uint8_t>(random_())};
      const uint64_t at = TryAllocate(live.bytes, live.any ? kAnyStream : live.stream);
      if (at == 0) return;
      REQUIRE(f_.PoolOf(at) == 0);
      f_.Fill(live.stream, at, live.bytes, live.value);
      live_[at] = live;
    } else if (pick < 98) {
      Free();
    } else if (pick < 99) {
      REQUIRE(f_.heap().Trim(random_() % (64 * kMiB)).ok());
    } else {
      REQUIRE(f_.heap().EmptyCache().ok());
    }
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
    } else if (random_() % 10 == 0) {
      const CUstream other = Any(streams_);
      f_.OrderAfter(live.stream, other);
      f_.FreeAsync(at, other);
    } else {
      f_.FreeAsync(at, live.stream);
    }
  }

  // ---- Graphs ----

  void Capture(const Pool& pool) {
    Graph g{pool, nullptr, 0, RandomBytes(), 0, 0, 0};
    g.input = TryAllocate(g.input_bytes, pool.stream);
    if (g.input == 0) return;
    const bool by_thread = random_() % 2 == 0;
    if (by_thread) {
      f_.Begin(pool.id);
    } else {
      const auto is_stream = [](Stream stream, void* user) { return stream == user ? 1 : 0; };
      REQUIRE(f_.heap().BeginRoute(pool.id, is_stream, pool.stream).ok());
    }
    f_.BeginCapture(pool.stream);
    g.output = g.input;
    g.output_bytes = g.input_bytes;
    const uint64_t length = 1 + random_() % 8;
    for (uint64_t i = 0; i < length; ++i) {
      CaptureStep(&g);
      for (uint64_t k = by_thread ? 0 : random_() % 4; k > 0; --k) Ordinary();
    }
    // A fork that was not made joins nothing.
    if (is_forked_) f_.OrderAfter(fork_, pool.stream);
    is_forked_ = false;
    g.exec = f_.EndCapture(pool.stream);  // fails if anything has disturbed the capture
    f_.End(pool.id);
    graphs_.push_back(g);
  }
  void CaptureStep(Graph* g) {
    const CUstream stream = g->pool.stream;
    const uint64_t bytes = RandomBytes();
    const bool any = random_() % 8 == 0 && g->output != g->input;
    const uint64_t to = TryAllocate(bytes, stream);
    if (to == 0) return;
    REQUIRE(f_.PoolOf(to) == g->pool.id);
    f_.Next(stream, g->output, g->output_bytes, to, bytes);
    if (g->output != g->input) {
      if (random_() % 4 == 0) {
        f_.OrderAfter(stream, fork_);
        f_.Read(fork_, g->output, g->output_bytes);
        REQUIRE(f_.heap().RecordUse(g->output, fork_).ok());
        is_forked_ = true;
      }
      if (any) {
        f_.Free(g->output);
      } else {
        f_.FreeAsync(g->output, stream);
      }
    }
    g->output = to;
    g->output_bytes = bytes;
    ++g->steps;
  }
  void Replay(const Graph& g) {
    const auto value = static_cast<uint8_t>(random_());
    f_.Fill(g.pool.stream, g.input, g.input_bytes, value);
    f_.LaunchGraph(g.exec, g.pool.stream);
    values_.push_back(static_cast<uint8_t>(value + g.steps));
    f_.Check(g.pool.stream, g.output, g.output_bytes, &values_.back());
    ++replays_;
  }
  void Drop(size_t index) {
    const Graph g = graphs_[index];
    graphs_.erase(graphs_.begin() + static_cast<ptrdiff_t>(index));
    FreeBlocks(g);
  }
  void FreeBlocks(const Graph& g) {
    if (g.output != g.input) f_.FreeAsync(g.output, g.pool.stream);
    f_.FreeAsync(g.input, g.pool.stream);
  }
  // Its graphs run no more; their blocks are freed before or after.
  void Release(size_t index) {
    const Pool pool = pools_[index];
    pools_.erase(pools_.begin() + static_cast<ptrdiff_t>(index));
    std::vector<Graph> gone;
    for (size_t i = graphs_.size(); i-- > 0;) {
      if (graphs_[i].pool.id != pool.id) continue;
      if (random_() % 2 == 0) {
        Drop(i);
      } else {
        gone.push_back(graphs_[i]);
        graphs_.erase(graphs_.begin() + static_cast<ptrdiff_t>(i));
      }
    }
    f_.Release(pool.id);
    for (int i = 0; i < 20; ++i) Ordinary();
    for (const Graph& g : gone) FreeBlocks(g);
  }

  CaptureFixture& f_;
  std::mt19937_64 random_;
  const uint64_t most_log2_;  // of the bytes of a block
  const CUstream fork_;
  std::vector<CUstream> streams_, capture_streams_;
  std::vector<Pool> pools_;
  std::vector<Graph> graphs_;
  std::map<uint64_t, Live> live_;
  std::deque<uint8_t> values_;  // for work that has not run yet
  bool is_forked_ = false;
  int replays_ = 0;
};

}  // namespace

TEST_CASE("random programs with capture pools keep contents, order and accounts",
          "[capture][model]") {
  const uint64_t seed = test::Seed();
  int replays = 0;
  uint64_t merged = 0, shared = 0;
  for (uint64_t round = 0; round < 12; ++round) {
    // Without mapping, and without context events, the presets change nothing.
    const char* conf = round < 8 ? "mode:default" : round % 2 == 0 ? "mode:tight" : "mode:serving";
    INFO("round " << round << ", " << conf);
    sim::Config config;
    // Two programs are always the same, so that what must be shown does not depend on luck.
    const uint64_t program_seed = round == 8 || round == 9 ? round + 1 : seed + round;
    config.seed = program_seed;
    config.memory_bytes = (round >= 8 ? 32 : round % 2 == 0 ? 96 : 400) * kMiB;
    config.run_ahead = round < 4 || round >= 10 ? 16 : 2000;
    config.vmm = round != 7;
    if (round == 6) config.driver_version = 12040;  // without context events
    CaptureFixture f(config, test::OptionsFrom(conf));
    Program program(f, program_seed, /*most_log2=*/round < 8 ? 23 : 24);
    for (int i = 0; i < 1500; ++i) {
      program.Step();
      if (i % 64 == 0) {
        f.RequireValid();
        REQUIRE(f.Stats().reserved_bytes == sim::UsedBytes(0));
      }
    }
    program.End();
    REQUIRE(f.heap().EmptyCache().ok());
    f.RequireValid();
    REQUIRE(f.Stats().active_bytes == 0);
    REQUIRE(sim::UsedBytes(0) == 0);
    f.RequireNoRaces();
    REQUIRE(f.mismatches() == 0);
    merged += f.Stats().merged_granules;
    shared += f.Stats().shared_blocks;
    replays += program.replays();
  }
  REQUIRE(replays > 0);
  REQUIRE(merged > 0);
  REQUIRE(shared > 0);
}

}  // namespace weir
