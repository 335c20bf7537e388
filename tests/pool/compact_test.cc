// weir_compact: what it gains, what it keeps, what it leaves alone.
#include <atomic>
#include <barrier>
#include <random>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/pool/capture_fixture.h"
#include "tests/pool/preset.h"
#include "tests/support/seed.h"

namespace weir {
namespace {

using test::CaptureFixture;
using test::OptionsFrom;

sim::Config SmallDevice() {
  sim::Config config;
  config.memory_bytes = 64 * kMiB;
  return config;
}

weir_compact_result_t Compact(CaptureFixture& f, uint64_t keep_bytes = 0, uint32_t max_ms = 0,
                              bool merge = true) {
  weir_compact_options_t options{};
  options.keep_bytes = keep_bytes;
  options.max_ms = max_ms;
  options.merge = merge ? 1 : 0;
  weir_compact_result_t result{};
  const HeapError error = f.heap().Compact(options, &result);
  INFO(error.text);
  REQUIRE(error.ok());
  f.RequireValid();
  REQUIRE(result.reserved_bytes == f.Stats().reserved_bytes);
  REQUIRE(result.reserved_bytes == sim::UsedBytes(0));
  return result;
}

// 40 MiB in blocks of 512 KiB, of which one in four stays, at another place in each granule.
std::vector<uint64_t> Scatter(CaptureFixture& f, CUstream stream) {
  std::vector<uint64_t> live, gone;
  for (int i = 0; i < 80; ++i) {
    const uint64_t at = f.Allocate(512 * kKiB, stream);
    const uint64_t place = at % (2 * kMiB) / (512 * kKiB), granule = at / (2 * kMiB);
    (place == granule % 4 ? live : gone).push_back(at);
  }
  for (const uint64_t at : gone) f.FreeAsync(at, stream);
  for (const uint64_t at : live) f.Fill(stream, at, 512 * kKiB, static_cast<uint8_t>(at >> 19));
  return live;
}
void CheckAndFree(CaptureFixture& f, CUstream stream, const std::vector<uint64_t>& live) {
  for (const uint64_t at : live) {
    f.CheckNow(stream, at, 512 * kKiB, static_cast<uint8_t>(at >> 19));
    f.FreeAsync(at, stream);
  }
  REQUIRE(f.heap().EmptyCache().ok());
  f.RequireValid();
  f.RequireNoRaces();
}

}  // namespace

TEST_CASE("compaction merges and gives back, keeps contents and moves no pointer", "[compact]") {
  CaptureFixture f(SmallDevice(), OptionsFrom("mesh:compact,max_handle:2MiB"));
  const CUstream s = f.NewStream();
  const std::vector<uint64_t> live = Scatter(f, s);
  const uint64_t before = f.Stats().reserved_bytes;
  const weir_compact_result_t result = Compact(f);
  REQUIRE(result.merged_granules >= 10);
  REQUIRE(result.copied_bytes == result.merged_granules * 512 * kKiB);
  REQUIRE(result.released_bytes == before - result.reserved_bytes);
  REQUIRE(result.released_bytes >= result.merged_granules * 2 * kMiB);
  REQUIRE(result.driver_time_ns > 0);
  REQUIRE(Compact(f).merged_granules == 0);  // there is nothing left to do
  CheckAndFree(f, s, live);
  REQUIRE(sim::UsedBytes(0) == 0);
}

TEST_CASE("compaction without merging only gives back", "[compact]") {
  for (const char* conf : {"mesh:never,max_handle:2MiB", "mesh:compact,max_handle:2MiB"}) {
    INFO(conf);
    CaptureFixture f(SmallDevice(), OptionsFrom(conf));
    const CUstream s = f.NewStream();
    const std::vector<uint64_t> live = Scatter(f, s);
    f.FreeAsync(f.Allocate(8 * kMiB, s), s);
    const bool merge = std::string_view(conf).starts_with("mesh:never");
    const weir_compact_result_t result = Compact(f, 0, 0, merge);
    REQUIRE(result.merged_granules == 0);
    REQUIRE(result.copied_bytes == 0);
    REQUIRE(result.released_bytes > 0);
    CheckAndFree(f, s, live);
  }
}

TEST_CASE("compaction gives back no more than down to keep_bytes", "[compact]") {
  CaptureFixture f(SmallDevice(), OptionsFrom("mesh:compact,max_handle:2MiB"));
  const CUstream s = f.NewStream();
  const std::vector<uint64_t> live = Scatter(f, s);
  const uint64_t before = f.Stats().reserved_bytes;
  REQUIRE(Compact(f, before).released_bytes == 0);
  const uint64_t keep = 30 * kMiB;
  const uint64_t reserved = Compact(f, keep).reserved_bytes;
  REQUIRE(reserved <= keep);
  REQUIRE(reserved + 2 * kMiB > keep);
  CheckAndFree(f, s, live);
}

TEST_CASE("compaction begins no further copy when its time is over", "[compact]") {
  CaptureFixture f(SmallDevice(), OptionsFrom("mesh:compact,max_handle:2MiB"));
  const CUstream s = f.NewStream();
  const std::vector<uint64_t> live = Scatter(f, s);
  sim::SetCost("cuMemcpyAsync", {.call_ns = 400'000});
  const weir_compact_result_t result = Compact(f, 0, /*max_ms=*/1);
  REQUIRE(result.merged_granules >= 1);
  REQUIRE(result.merged_granules <= 3);
  CheckAndFree(f, s, live);
}

TEST_CASE("compaction gives back no further memory when its time is over", "[compact]") {
  CaptureFixture f(SmallDevice(), OptionsFrom("max_handle:2MiB"));
  const CUstream s = f.NewStream();
  f.FreeAsync(f.Allocate(60 * kMiB, s), s);
  sim::SetCost("cuMemUnmap", {.call_ns = 400'000});
  const weir_compact_result_t result = Compact(f, 0, /*max_ms=*/1);
  REQUIRE(result.released_bytes >= 2 * kMiB);
  REQUIRE(result.released_bytes <= 6 * kMiB);
  REQUIRE(Compact(f).reserved_bytes == 0);
}

TEST_CASE("nothing is merged of a capture pool, nor while a stream is captured",
          "[compact][capture]") {
  CaptureFixture f(SmallDevice(), OptionsFrom("mesh:compact,max_handle:2MiB"));
  const CUstream s = f.NewStream(), captured = f.NewStream();
  f.Allocate(700, captured);  // Weir knows the stream
  const uint64_t pool = f.NewPool();
  f.Begin(pool);
  const std::vector<uint64_t> live = Scatter(f, s);
  f.End(pool);
  REQUIRE(f.PoolOf(live.front()) == pool);
  REQUIRE(Compact(f).merged_granules == 0);
  CheckAndFree(f, s, live);
  f.Release(pool);
  const std::vector<uint64_t> ordinary = Scatter(f, s);
  f.BeginCapture(captured);
  REQUIRE(Compact(f).merged_granules == 0);
  REQUIRE(f.device().CaptureSurvives(captured));
  REQUIRE(Compact(f).merged_granules > 0);
  CheckAndFree(f, s, ordinary);
}

// While compaction copies, no thread submits work: they meet before and after it.
TEST_CASE("threads that stop for compaction keep contents and order", "[compact][threads]") {
  const uint64_t seed = test::Seed();
  sim::Config config = SmallDevice();
  config.executor = sim::Executor::kThreaded;
  CaptureFixture f(config, OptionsFrom("mode:tight,mesh:compact"));
  constexpr int kThreads = 3, kRounds = 7;
  std::vector<CUstream> streams;
  for (int t = 0; t < kThreads; ++t) streams.push_back(f.NewStream());
  std::atomic<int> wrong{0};
  std::barrier meet(kThreads + 1);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      if (!f.EnterDevice()) ++wrong;
      const CUstream stream = streams[static_cast<size_t>(t)];
      std::mt19937_64 random(seed + static_cast<uint64_t>(t));
      std::vector<std::pair<uint64_t, uint8_t>> live;
      const auto touch = [&](uint64_t at, uint8_t value, bool write) {
        const auto result = sim::Launch(stream, write ? "write" : "check", {{at, 1, write}},
                                        [&wrong, at, value, write](sim::KernelMemory& view) {
                                          uint8_t byte = value;
                                          if (write) {
                                            view.Write(at, &byte, 1);
                                            return;
                                          }
                                          view.Read(at, &byte, 1);
                                          if (byte != value) ++wrong;
                                        });
        if (result != CUDA_SUCCESS) ++wrong;
      };
      // First two blocks at different offsets of two granules, which merge whatever comes later.
      for (int i = 0; i < 6; ++i) {
        HeapError error;
        const uint64_t at = f.heap().Allocate(700 * kKiB, kBlockAlignment, stream, &error);
        if (at == 0) ++wrong;
        live.emplace_back(at, static_cast<uint8_t>(i));
        touch(at, live.back().second, true);
      }
      for (const int i : {5, 3, 2, 1}) {
        if (!f.heap().FreeAsync(live[static_cast<size_t>(i)].first, stream).ok()) ++wrong;
        live.erase(live.begin() + i);
      }
      for (int round = 0; round < kRounds; ++round) {
        for (int i = 0; round > 0 && i < 150; ++i) {
          if (random() % 5 < 3) {
            const uint64_t bytes = 1 + random() % (uint64_t{1} << (10 + random() % 10));
            HeapError error;
            const uint64_t at = f.heap().Allocate(bytes, kBlockAlignment, stream, &error);
            if (at == 0) continue;
            live.emplace_back(at, static_cast<uint8_t>(random()));
            touch(at, live.back().second, true);
          } else if (!live.empty()) {
            std::swap(live[random() % live.size()], live.back());
            const auto [at, value] = live.back();
            live.pop_back();
            touch(at, value, false);
            if (!f.heap().FreeAsync(at, stream).ok()) ++wrong;
          }
        }
        meet.arrive_and_wait();
        meet.arrive_and_wait();
      }
      for (const auto& [at, value] : live) {
        touch(at, value, false);
        if (!f.heap().FreeAsync(at, stream).ok()) ++wrong;
      }
    });
  }
  weir_compact_options_t options{};
  options.merge = 1;
  uint64_t merged = 0;
  for (int round = 0; round < kRounds; ++round) {
    meet.arrive_and_wait();
    weir_compact_result_t result{};
    if (!f.heap().Compact(options, &result).ok() || !f.heap().Verify().empty()) ++wrong;
    merged += result.merged_granules;
    meet.arrive_and_wait();
  }
  for (std::thread& thread : threads) thread.join();
  REQUIRE(f.heap().EmptyCache().ok());
  REQUIRE(wrong == 0);
  REQUIRE(merged > 0);
  f.RequireValid();
  f.RequireNoRaces();
  REQUIRE(sim::UsedBytes(0) == 0);
}

TEST_CASE("free memory between small blocks that live on serves a large request (pytorch 35901)",
          "[compact][reports]") {
  CaptureFixture f(SmallDevice(), OptionsFrom("mode:tight"));
  const CUstream s = f.NewStream();
  const std::vector<uint64_t> live = Scatter(f, s);  // 10 MiB in 20 granules; 24 MiB are left
  const uint64_t large = f.Allocate(40 * kMiB, s);
  f.Fill(s, large, 40 * kMiB, 1);
  f.FreeAsync(large, s);
  CheckAndFree(f, s, live);
}

}  // namespace weir
