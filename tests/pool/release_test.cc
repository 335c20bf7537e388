// Memory that is made in advance, and memory that is given back of itself.
#include <random>

#include "tests/pool/heap_fixture.h"
#include "tests/support/seed.h"

namespace weir {
namespace {

using test::Device;
using test::HeapFixture;

// Time goes on only by what driver calls cost.
void PassSeconds(HeapFixture& f, double seconds) {
  const sim::Cost usual;
  sim::SetCost("cuMemGetInfo", {seconds * 1e9, 0, 0});
  uint64_t free_bytes = 0, total_bytes = 0;
  REQUIRE(f.heap().MemGetInfo(&free_bytes, &total_bytes).ok());
  sim::SetCost("cuMemGetInfo", usual);
}

uint64_t CreatesAndReleases() {
  return sim::CallCount("cuMemCreate") + sim::CallCount("cuMemRelease");
}

}  // namespace

// ---- Preallocation ------------------------------------------------------------------------------

TEST_CASE("misses only map what was made in advance", "[release]") {
  HeapOptions options;
  options.preallocate = 512 * kMiB;
  HeapFixture f({}, options);
  REQUIRE(f.Stats().reserved_bytes == 512 * kMiB);
  REQUIRE(sim::UsedBytes(0) == 512 * kMiB);
  sim::ResetCallCounts();
  const CUstream side = f.NewStream();
  for (const uint64_t bytes : {3 * kMiB, 70 * kMiB + 512, 20 * kMiB, 700 * kKiB, 100 * kKiB}) {
    for (Stream stream : {Stream{nullptr}, Stream{side}, kAnyStream}) {
      const uint64_t at = f.Allocate(bytes, stream);
      f.Write(stream == kAnyStream ? nullptr : stream, at, bytes);
    }
  }
  REQUIRE(CreatesAndReleases() == 0);
  REQUIRE(f.Stats().reserved_bytes == 512 * kMiB);
  f.RequireNoRaces();
  f.RequireValid();
}

TEST_CASE("preallocating reserves what is missing to the amount, and is not repeated",
          "[release]") {
  HeapFixture f;
  f.Allocate(100 * kMiB);
  REQUIRE(f.heap().Preallocate(300 * kMiB).ok());
  REQUIRE(f.Stats().reserved_bytes == 300 * kMiB);
  sim::ResetCallCounts();
  REQUIRE(f.heap().Preallocate(299 * kMiB).ok());
  REQUIRE(CreatesAndReleases() == 0);
  f.RequireValid();
  REQUIRE(f.heap().EmptyCache().ok());  // it is idle memory like any other
  REQUIRE(f.Stats().reserved_bytes == 100 * kMiB);
}

TEST_CASE("preallocating all or nothing", "[release]") {
  HeapFixture f(Device(256 * kMiB));
  f.Allocate(10 * kMiB);
  for (const uint64_t bytes : {257 * kMiB, uint64_t{UINT64_MAX}}) {
    REQUIRE(f.heap().Preallocate(bytes).code == WEIR_ERROR_OUT_OF_MEMORY);
  }
  sim::SetOtherProcessBytes(0, 100 * kMiB);
  REQUIRE(f.heap().Preallocate(200 * kMiB).code == WEIR_ERROR_OUT_OF_MEMORY);
  REQUIRE(f.Stats().reserved_bytes == 10 * kMiB);
  REQUIRE(sim::UsedBytes(0) == 10 * kMiB);
  f.heap().SetMemoryLimit(120 * kMiB);
  REQUIRE(f.heap().Preallocate(122 * kMiB).code == WEIR_ERROR_OUT_OF_MEMORY);
  REQUIRE(f.heap().Preallocate(120 * kMiB).ok());
  f.RequireValid();
}

TEST_CASE("without mapping nothing can be made in advance, and that is said", "[release]") {
  HeapOptions options;
  options.vmm = false;
  HeapFixture f({}, options);
  REQUIRE(f.heap().Preallocate(10 * kMiB).code == WEIR_ERROR_CONFIGURATION);
}

TEST_CASE("a heap whose preallocation fails does not begin, and leaves nothing", "[release]") {
  test::SimDevice device(Device(256 * kMiB));
  HeapOptions options;
  options.preallocate = 200 * kMiB;
  sim::SetOtherProcessBytes(0, 100 * kMiB);
  HeapError error;
  REQUIRE(DeviceHeap::Create(device.Create(0, true), options, &error) == nullptr);
  REQUIRE(error.code == WEIR_ERROR_OUT_OF_MEMORY);
  REQUIRE(error.text.find("preallocate") != std::string::npos);
  REQUIRE(sim::UsedBytes(0) == 0);
}

TEST_CASE("growing as needed never fails where preallocation does not (tensorflow 6111, 26218)",
          "[release][reports]") {
  const uint64_t seed = test::Seed();
  for (uint64_t round = 0; round < 20; ++round) {
    std::vector<bool> served[2];
    for (const bool prealloc : {true, false}) {
      HeapOptions options;
      if (prealloc) options.preallocate = 256 * kMiB;
      HeapFixture f(Device(256 * kMiB), options);
      std::mt19937_64 random(seed + round);
      std::vector<uint64_t> live;
      for (int i = 0; i < 150; ++i) {
        if (random() % 3 != 0 || live.empty()) {
          HeapError error;
          const uint64_t at = f.heap().Allocate(1 + random() % (24 * kMiB), 512, nullptr, &error);
          served[prealloc].push_back(at != 0);
          if (at != 0) live.push_back(at);
        } else {
          const size_t i_free = random() % live.size();
          f.FreeAsync(live[i_free]);
          live.erase(live.begin() + static_cast<long>(i_free));
        }
        if (served[0].size() > served[1].size()) continue;
        if (served[0] != served[1] && !prealloc) break;
      }
      f.RequireValid();
    }
    // Up to the first request that preallocation does not serve.
    for (size_t i = 0; i < served[0].size() && served[1][i]; ++i) REQUIRE(served[0][i]);
  }
}

// ---- Giving back --------------------------------------------------------------------------------

TEST_CASE("idle memory beyond release_threshold is given back at the next miss", "[release]") {
  const bool vmm = GENERATE(true, false);
  HeapOptions options;
  options.vmm = vmm;
  options.release_threshold = 40 * kMiB;
  HeapFixture f({}, options);
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(f.Allocate(20 * kMiB));
  const uint64_t before = f.Stats().reserved_bytes;
  for (uint64_t at : blocks) f.FreeAsync(at);
  sim::RunUntilIdle();
  sim::ResetCallCounts();
  f.FreeAsync(f.Allocate(20 * kMiB));  // a hit gives nothing back
  REQUIRE(sim::CallCounts().empty());
  REQUIRE(f.Stats().reserved_bytes == before);
  f.Allocate(kMiB, f.NewStream());  // markers are recorded, if at all
  f.Allocate(2 * kMiB, kAnyStream);
  for (int i = 0; i < 2; ++i) {  // trims record them in any case
    REQUIRE(f.heap().Trim(f.Stats().reserved_bytes - 2 * kMiB).ok());
  }
  const weir_stats_t s = f.Stats();
  REQUIRE(s.reserved_bytes - s.active_bytes <= 40 * kMiB + 42 * kMiB);
  REQUIRE(s.reserved_bytes < before - 100 * kMiB);
  f.RequireValid();
}

TEST_CASE("what is kept by release_threshold is kept", "[release]") {
  HeapOptions options;
  options.release_threshold = 100 * kMiB;
  HeapFixture f({}, options);
  f.FreeAsync(f.Allocate(100 * kMiB));
  REQUIRE(f.heap().Trim(UINT64_MAX).ok());
  REQUIRE(f.Stats().reserved_bytes == 100 * kMiB);
}

TEST_CASE("giving back never waits: work that is pending keeps its memory", "[release]") {
  HeapOptions options;
  options.release_threshold = 0;
  options.idle_decay = 0.001;
  options.gc_threshold = 0.01;
  HeapFixture f(Device(1024 * kMiB), options);
  const CUstream side = f.NewStream();
  const uint64_t a = f.Allocate(100 * kMiB, side);
  f.Write(side, a, 100 * kMiB);
  sim::HoldStream(0, side);
  f.FreeAsync(a, side);
  PassSeconds(f, 10);
  f.Allocate(10 * kMiB);
  REQUIRE(f.heap().Trim(UINT64_MAX).ok());
  REQUIRE(f.Stats().waits == 0);
  REQUIRE(f.Stats().reserved_bytes >= 110 * kMiB);
  sim::ReleaseStream(0, side);
  sim::RunUntilIdle();
  f.Allocate(12 * kMiB);
  REQUIRE(f.heap().Trim(UINT64_MAX).ok());
  f.RequireNoRaces();
  f.RequireValid();
}

TEST_CASE("memory that was not used for idle_decay is given back at the next slow call",
          "[release][reports]") {  // tensorflow 1578, CUDA.jl 2190
  HeapOptions options;
  options.idle_decay = 5;
  HeapFixture f({}, options);
  const uint64_t used = f.Allocate(30 * kMiB);
  f.FreeAsync(f.Allocate(100 * kMiB));
  REQUIRE(f.heap().Trim(UINT64_MAX).ok());  // seen in use until now
  REQUIRE(f.Stats().reserved_bytes == 130 * kMiB);
  PassSeconds(f, 4);
  REQUIRE(f.heap().Trim(UINT64_MAX).ok());
  REQUIRE(f.Stats().reserved_bytes == 130 * kMiB);
  // A hit counts as use, though nothing slow saw it.
  f.FreeAsync(f.Allocate(40 * kMiB));
  PassSeconds(f, 4);
  REQUIRE(f.heap().Trim(UINT64_MAX).ok());
  const uint64_t after_hit = f.Stats().reserved_bytes;
  REQUIRE(after_hit >= 70 * kMiB);
  REQUIRE(after_hit < 130 * kMiB);
  PassSeconds(f, 5);
  REQUIRE(f.heap().Trim(UINT64_MAX).ok());
  REQUIRE(f.Stats().reserved_bytes == 30 * kMiB);
  f.FreeAsync(used);
  f.RequireValid();
}

TEST_CASE("decay also happens at a miss", "[release]") {
  HeapOptions options;
  options.idle_decay = 5;
  HeapFixture f({}, options);
  f.FreeAsync(f.Allocate(100 * kMiB));
  REQUIRE(f.heap().Trim(UINT64_MAX).ok());
  PassSeconds(f, 6);
  f.Allocate(120 * kMiB, f.NewStream());  // moves some of it, and does not need the rest
  f.Allocate(10 * kMiB, f.NewStream());
  const weir_stats_t s = f.Stats();
  REQUIRE(s.reserved_bytes - s.active_bytes < 10 * kMiB);
  f.RequireValid();
}

TEST_CASE("preallocated memory does not decay", "[release]") {
  HeapOptions options;
  options.preallocate = 64 * kMiB;
  options.idle_decay = 1;
  options.release_threshold = 0;
  options.gc_threshold = 0.0001;
  HeapFixture f({}, options);
  f.FreeAsync(f.Allocate(100 * kMiB));
  sim::RunUntilIdle();
  for (int i = 0; i < 3; ++i) {
    PassSeconds(f, 10);
    REQUIRE(f.heap().Trim(UINT64_MAX - 1).ok());
  }
  REQUIRE(f.heap().Trim(100 * kMiB - 1).ok());  // proves that the rest is complete
  REQUIRE(f.heap().Trim(UINT64_MAX).ok());
  REQUIRE(f.Stats().reserved_bytes == 64 * kMiB);
}

TEST_CASE("gc_threshold acts without any limit being set (pytorch 106660)", "[release][reports]") {
  const bool vmm = GENERATE(true, false);
  HeapOptions options;
  options.vmm = vmm;
  options.gc_threshold = 0.3;
  HeapFixture f(Device(10 * 1024 * kMiB), options);
  // A program whose sizes grow: every block is freed before a larger one is asked for.
  uint64_t at = 0;
  for (uint64_t mib = 200; mib <= 2000; mib += 200) {
    if (at != 0) f.FreeAsync(at);
    f.Write(nullptr, at = f.Allocate(mib * kMiB), 512);
    sim::RunUntilIdle();
    REQUIRE(f.Stats().reserved_bytes <= std::max(3072 * kMiB, mib * kMiB + 20 * kMiB));
  }
  f.RequireNoRaces();
  f.RequireValid();
}

TEST_CASE("gc_threshold counts from the limit if that is lower, and never fails a request",
          "[release]") {
  HeapOptions options;
  options.gc_threshold = 0.5;
  options.memory_limit = 200 * kMiB;
  HeapFixture f({}, options);
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 18; ++i) blocks.push_back(f.Allocate(10 * kMiB));  // all of it in use
  for (uint64_t at : blocks) f.FreeAsync(at);
  sim::RunUntilIdle();
  REQUIRE(f.heap().Trim(178 * kMiB).ok());  // proves, and then the threshold acts
  REQUIRE(f.Stats().reserved_bytes <= 100 * kMiB);
  f.RequireValid();
}

TEST_CASE("a trim keeps n bytes, or says by its statistics who holds more (onnxruntime 12748)",
          "[release][reports]") {
  HeapFixture f;
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(f.Allocate(10 * kMiB));
  for (uint64_t at : blocks) f.FreeAsync(at);
  REQUIRE(f.heap().Trim(50 * kMiB).ok());
  REQUIRE(f.Stats().reserved_bytes <= 50 * kMiB);
  REQUIRE(f.Stats().reserved_bytes > 0);
  f.Allocate(30 * kMiB);
  REQUIRE(f.heap().Trim(0).ok());
  REQUIRE(f.Stats().reserved_bytes == 30 * kMiB);
}

TEST_CASE("a trim below which nothing is reserved does not wait", "[release]") {
  HeapFixture f;
  const CUstream side = f.NewStream();
  const uint64_t a = f.Allocate(10 * kMiB);
  f.Write(side, a, 512);
  REQUIRE(f.heap().RecordUse(a, side).ok());
  sim::HoldStream(0, side);
  f.FreeAsync(a);
  REQUIRE(f.heap().Trim(10 * kMiB).ok());
  REQUIRE(f.Stats().waits == 0);
  REQUIRE(sim::CheckerReports().empty());
  sim::ReleaseStream(0, side);
}

}  // namespace weir
