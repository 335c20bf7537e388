// Counters are exact although hits count for themselves: against a naive model, from one thread and
// from several.
#include <array>
#include <atomic>
#include <barrier>
#include <random>

#include "allocator/block/size_classes.h"
#include "tests/pool/heap_fixture.h"
#include "tests/support/seed.h"
#include "tests/support/worker.h"

namespace weir {
namespace {

using test::HeapFixture;
using test::Worker;

// What a block counts as allocated.
uint64_t AllocatedBytes(uint64_t requested) {
  if (requested <= kMaxSmallBytes) return SizeOfClass(SizeClassOf(requested));
  return AlignUp(requested, kBlockAlignment);
}

struct Counter {
  uint64_t now = 0, peak = 0, total = 0;
  void Add(uint64_t amount) {
    now += amount;
    total += amount;
    peak = std::max(peak, now);
  }
  void Sub(uint64_t amount) { now -= amount; }
  void ResetPeak() { peak = now; }
};

// What the heap's counters must say after calls that came one after the other.
class Model {
 public:
  void Allocate(uint64_t bytes) {
    requested_.Add(bytes);
    allocated_.Add(AllocatedBytes(bytes));
    blocks_.Add(1);
  }
  void Free(uint64_t bytes) {
    requested_.Sub(bytes);
    allocated_.Sub(AllocatedBytes(bytes));
    blocks_.Sub(1);
  }
  void ResetPeaks() {
    requested_.ResetPeak();
    allocated_.ResetPeak();
    blocks_.ResetPeak();
  }
  // S: weir_stats_t or weir_size_stats_t.
  template <typename S>
  void Require(const S& s) const {
    REQUIRE(s.requested_bytes == requested_.now);
    REQUIRE(s.peak_requested_bytes == requested_.peak);
    REQUIRE(s.total_requested_bytes == requested_.total);
    REQUIRE(s.allocated_bytes == allocated_.now);
    REQUIRE(s.peak_allocated_bytes == allocated_.peak);
    REQUIRE(s.total_allocated_bytes == allocated_.total);
    REQUIRE(s.allocations == blocks_.now);
    REQUIRE(s.peak_allocations == blocks_.peak);
    REQUIRE(s.total_allocations == blocks_.total);
    REQUIRE(s.total_active_bytes == allocated_.total);
    REQUIRE(s.total_active_blocks == blocks_.total);
  }
  // Where no free had to wait.
  template <typename S>
  void RequireActive(const S& s) const {
    REQUIRE(s.active_bytes == allocated_.now);
    REQUIRE(s.peak_active_bytes == allocated_.peak);
    REQUIRE(s.active_blocks == blocks_.now);
    REQUIRE(s.peak_active_blocks == blocks_.peak);
  }

 private:
  Counter requested_, allocated_, blocks_;
};

// All blocks, and those that count as small or large.
struct ModelsBySize {
  Model all, small, large;

  Model& For(uint64_t bytes) { return AllocatedBytes(bytes) > kMaxSmallArenaBytes ? large : small; }
  void Allocate(uint64_t bytes) {
    all.Allocate(bytes);
    For(bytes).Allocate(bytes);
  }
  void Free(uint64_t bytes) {
    all.Free(bytes);
    For(bytes).Free(bytes);
  }
  void ResetPeaks() {
    for (Model* model : {&all, &small, &large}) model->ResetPeaks();
  }
  void Require(HeapFixture& f, bool with_active) const {
    weir_size_stats_t of_small, of_large;
    f.heap().GetSizeStats(&of_small, &of_large);
    const weir_stats_t of_all = f.Stats();
    all.Require(of_all);
    small.Require(of_small);
    large.Require(of_large);
    if (!with_active) return;
    all.RequireActive(of_all);
    small.RequireActive(of_small);
    large.RequireActive(of_large);
  }
};

struct Live {
  uint64_t at, bytes;
  Stream stream;
};

// Mostly what caches serve, and of that mostly few sizes.
uint64_t RandomBytes(std::mt19937_64& random) {
  const uint64_t pick = random() % 100;
  if (pick < 2) return kMiB + random() % (4 * kMiB);
  if (pick < 10) return 1 + random() % (400 * kKiB);
  if (pick < 50) return 1000 * (1 + random() % 4);
  return random() % (uint64_t{1} << (random() % 19));
}

struct Program {
  bool deferred;      // frees that wait, and memory for any stream
  int observe_every;  // reading the counters takes all rooms back, so it must be rare too
  size_t threads;     // that take turns
};

void RunProgram(const Program& program, uint64_t seed, int steps) {
  INFO("deferred " << program.deferred << ", observed every " << program.observe_every << ", "
                   << program.threads << " threads");
  HeapFixture f;
  std::mt19937_64 random(seed);
  std::vector<Stream> streams{nullptr, f.NewStream(), f.NewStream()};
  std::vector<std::unique_ptr<Worker>> workers;
  for (size_t i = 0; i < program.threads; ++i) workers.push_back(std::make_unique<Worker>());
  ModelsBySize model;
  std::vector<Live> live;
  uint64_t peak_active = 0, failed = 0;
  for (int step = 0; step < steps; ++step) {
    const uint64_t pick = random() % 1000;
    // The number of live blocks goes up and down.
    const uint64_t allocate = (step / 300) % 2 == 0 ? 600 : 400;
    const auto in_thread = [&](std::function<void()> fn) {
      const size_t thread = random() % (program.threads + 1);
      thread == 0 ? fn() : workers[thread - 1]->Do(fn);
    };
    if (pick == 999) {
      f.heap().ResetPeaks();
      model.ResetPeaks();
      peak_active = f.Stats().active_bytes;
    } else if (pick == 998) {
      REQUIRE(f.heap().Trim(random() % (64 * kMiB)).ok());
    } else if (pick == 997 && program.threads > 0) {
      workers[random() % program.threads] = std::make_unique<Worker>();
    } else if (live.empty() || pick < allocate) {
      Live block{0, RandomBytes(random), streams[random() % streams.size()]};
      if (program.deferred && random() % 16 == 0) block.stream = kAnyStream;
      in_thread([&] {
        HeapError error;
        block.at = f.heap().Allocate(block.bytes, 512, block.stream, &error);
      });
      REQUIRE(block.at != 0);
      model.Allocate(block.bytes);
      live.push_back(block);
    } else {
      std::swap(live[random() % live.size()], live.back());
      const Live block = live.back();
      live.pop_back();
      Stream stream = block.stream;
      if (program.deferred && random() % 8 == 0) stream = streams[random() % streams.size()];
      if (program.deferred && random() % 8 == 0) {
        if (!f.heap().RecordUse(block.at, streams[random() % streams.size()]).ok()) ++failed;
      }
      in_thread([&] {
        if (!f.heap().FreeAsync(block.at, stream).ok()) ++failed;
      });
      model.Free(block.bytes);
    }
    if (program.observe_every == 1) peak_active = std::max(peak_active, f.Stats().active_bytes);
    if (step % program.observe_every == 0) {
      model.Require(f, /*with_active=*/!program.deferred);
      const weir_stats_t s = f.Stats();
      if (program.observe_every == 1) REQUIRE(s.peak_active_bytes == peak_active);
      REQUIRE(s.active_bytes >= s.allocated_bytes);
      REQUIRE(s.peak_active_bytes >= s.peak_allocated_bytes);
      REQUIRE(s.peak_active_blocks >= s.peak_allocations);
    }
  }
  REQUIRE(failed == 0);
  model.Require(f, /*with_active=*/!program.deferred);
  f.RequireValid();
}

TEST_CASE("counters and peaks are those of a naive model", "[cache][count]") {
  const uint64_t seed = test::Seed();
  for (const bool deferred : {false, true}) {
    for (const int observe_every : {1, 7, 997}) {
      RunProgram({deferred, observe_every, 0}, seed, 6000);
    }
  }
}

TEST_CASE("counters and peaks are exact where threads take turns", "[cache][count]") {
  const uint64_t seed = test::Seed();
  for (const bool deferred : {false, true}) {
    for (const int observe_every : {1, 7, 997}) {
      RunProgram({deferred, observe_every, 3}, seed, 3000);
    }
  }
}

// Calls fn(thread, random) in several threads at the same time, `rounds` times with a barrier after
// each; between them, with all threads stopped, calls between().
template <typename Fn, typename Between>
void InRounds(size_t threads, int rounds, uint64_t seed, Fn fn, Between between) {
  std::barrier barrier(static_cast<std::ptrdiff_t>(threads) + 1);
  std::vector<std::thread> all;
  for (size_t t = 0; t < threads; ++t) {
    all.emplace_back([&, t] {
      std::mt19937_64 random(seed + t);
      for (int round = 0; round < rounds; ++round) {
        fn(round, t, random);
        barrier.arrive_and_wait();
        barrier.arrive_and_wait();
      }
    });
  }
  for (int round = 0; round < rounds; ++round) {
    barrier.arrive_and_wait();
    between(round);
    barrier.arrive_and_wait();
  }
  for (std::thread& thread : all) thread.join();
}

TEST_CASE("a peak that threads reach together is exact", "[cache][count][threads]") {
  // In even rounds all threads only allocate, in odd ones they only free: whatever the order of the
  // calls, the peak is what was allocated at the end of a round.
  const uint64_t seed = test::Seed();
  HeapFixture f;
  constexpr size_t kThreads = 3;
  struct PerThread {
    Stream stream;
    std::vector<Live> live;
    uint64_t requested = 0, allocated = 0, blocks = 0, total = 0;
    uint64_t large = 0, large_blocks = 0;  // of them, requested
  };
  std::array<PerThread, kThreads> per_thread;
  for (PerThread& own : per_thread) own.stream = f.NewStream();
  per_thread[1].stream = per_thread[0].stream;
  std::atomic<int> wrong{0};
  uint64_t peak_requested = 0, peak_allocated = 0, peak_blocks = 0;
  uint64_t peak_large = 0, peak_small = 0, peak_small_blocks = 0;
  InRounds(
      kThreads, 60, seed,
      [&](int round, size_t t, std::mt19937_64& random) {
        PerThread& own = per_thread[t];
        // How much goes up and down differs, so that threads have room left of earlier peaks.
        if (round % 2 == 0) {
          const uint64_t count = random() % 400;
          for (uint64_t i = 0; i < count; ++i) {
            const uint64_t bytes = RandomBytes(random) % (300 * kKiB);
            HeapError error;
            const uint64_t at = f.heap().Allocate(bytes, 512, own.stream, &error);
            if (at == 0) ++wrong;
            own.live.push_back({at, bytes, own.stream});
            own.requested += bytes;
            own.allocated += AllocatedBytes(bytes);
            own.total += bytes;
            if (AllocatedBytes(bytes) > kMaxSmallArenaBytes) {
              own.large += bytes;
              ++own.large_blocks;
            }
          }
        } else {
          const size_t keep = random() % (own.live.size() + 1);
          while (own.live.size() > keep) {
            const Live block = own.live.back();
            own.live.pop_back();
            if (!f.heap().FreeAsync(block.at, block.stream).ok()) ++wrong;
            own.requested -= block.bytes;
            own.allocated -= AllocatedBytes(block.bytes);
            if (AllocatedBytes(block.bytes) > kMaxSmallArenaBytes) {
              own.large -= block.bytes;
              --own.large_blocks;
            }
          }
        }
        own.blocks = own.live.size();
      },
      [&](int round) {
        uint64_t requested = 0, allocated = 0, blocks = 0, total = 0, large = 0, large_blocks = 0;
        for (const PerThread& own : per_thread) {
          requested += own.requested;
          allocated += own.allocated;
          blocks += own.blocks;
          total += own.total;
          large += own.large;
          large_blocks += own.large_blocks;
        }
        if (round % 20 == 0) {
          f.heap().ResetPeaks();
          peak_requested = peak_allocated = peak_blocks = 0;
          peak_large = peak_small = peak_small_blocks = 0;
        }
        peak_large = std::max(peak_large, large);
        peak_small = std::max(peak_small, requested - large);
        peak_small_blocks = std::max(peak_small_blocks, blocks - large_blocks);
        peak_requested = std::max(peak_requested, requested);
        peak_allocated = std::max(peak_allocated, allocated);
        peak_blocks = std::max(peak_blocks, blocks);
        if (round % 5 != 4) return;  // seldom, because looking takes all rooms back
        const weir_stats_t s = f.Stats();
        CHECK(s.requested_bytes == requested);
        CHECK(s.allocated_bytes == allocated);
        CHECK(s.active_bytes == allocated);
        CHECK(s.allocations == blocks);
        CHECK(s.total_requested_bytes == total);
        CHECK(s.peak_requested_bytes == peak_requested);
        CHECK(s.peak_allocated_bytes == peak_allocated);
        CHECK(s.peak_active_bytes == peak_allocated);
        CHECK(s.peak_allocations == peak_blocks);
        weir_size_stats_t of_small, of_large;
        f.heap().GetSizeStats(&of_small, &of_large);
        CHECK(of_large.requested_bytes == large);
        CHECK(of_small.requested_bytes == requested - large);
        CHECK(of_large.peak_requested_bytes == peak_large);
        CHECK(of_small.peak_requested_bytes == peak_small);
        CHECK(of_small.peak_allocations == peak_small_blocks);
        CHECK(of_small.peak_active_blocks == peak_small_blocks);
      });
  REQUIRE(wrong == 0);
  f.RequireValid();
}

TEST_CASE("a peak lies between what was there at one time and the sum of all threads' peaks",
          "[cache][count][threads]") {
  const uint64_t seed = test::Seed();
  HeapFixture f;
  constexpr size_t kThreads = 3;
  std::array<Counter, kThreads> requested, blocks;
  std::array<std::vector<Live>, kThreads> live;
  std::vector<Stream> streams;
  for (size_t t = 0; t < kThreads; ++t) streams.push_back(f.NewStream());
  std::atomic<int> wrong{0};
  uint64_t most_requested = 0, most_blocks = 0;
  InRounds(
      kThreads, 30, seed,
      [&](int, size_t t, std::mt19937_64& random) {
        for (int i = 0; i < 500; ++i) {
          if (live[t].empty() || random() % 2 == 0) {
            const uint64_t bytes = RandomBytes(random) % (300 * kKiB);
            HeapError error;
            const uint64_t at = f.heap().Allocate(bytes, 512, streams[t], &error);
            if (at == 0) ++wrong;
            live[t].push_back({at, bytes, streams[t]});
            requested[t].Add(bytes);
            blocks[t].Add(1);
          } else {
            std::swap(live[t][random() % live[t].size()], live[t].back());
            if (!f.heap().FreeAsync(live[t].back().at, streams[t]).ok()) ++wrong;
            requested[t].Sub(live[t].back().bytes);
            blocks[t].Sub(1);
            live[t].pop_back();
          }
        }
      },
      [&](int) {
        uint64_t now_requested = 0, now_blocks = 0;
        for (size_t t = 0; t < kThreads; ++t) {
          now_requested += requested[t].now;
          now_blocks += blocks[t].now;
        }
        most_requested = std::max(most_requested, now_requested);
        most_blocks = std::max(most_blocks, now_blocks);
      });
  REQUIRE(wrong == 0);
  uint64_t sum_requested = 0, sum_blocks = 0, total_requested = 0, total_blocks = 0;
  for (size_t t = 0; t < kThreads; ++t) {
    sum_requested += requested[t].peak;
    sum_blocks += blocks[t].peak;
    total_requested += requested[t].total;
    total_blocks += blocks[t].total;
  }
  const weir_stats_t s = f.Stats();
  REQUIRE(s.total_requested_bytes == total_requested);
  REQUIRE(s.total_allocations == total_blocks);
  REQUIRE(s.peak_requested_bytes >= most_requested);
  REQUIRE(s.peak_requested_bytes <= sum_requested);
  REQUIRE(s.peak_allocations >= most_blocks);
  REQUIRE(s.peak_allocations <= sum_blocks);
  f.RequireValid();
}

}  // namespace
}  // namespace weir
