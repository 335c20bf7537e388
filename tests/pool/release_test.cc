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

TEST_CASE("preallocated memory stays made, however misses cut its handles", "[release]") {
  HeapOptions options;
  options.preallocate = 8192 * kMiB;  // handles longer than a granule
  HeapFixture f(Device(24 * 1024 * kMiB), options);
  std::vector<uint64_t> blocks;
  for (uint64_t i = 1; i <= 100; ++i) {
    blocks.push_back(f.Allocate(i % 7 * kMiB + 300 * kKiB));
    REQUIRE(f.Stats().reserved_bytes == 8192 * kMiB);
  }
  for (const uint64_t at : blocks) f.FreeAsync(at);
  f.RequireValid();
  // What the program gives back itself is not made anew.
  REQUIRE(f.heap().EmptyCache().ok());
  f.Allocate(3 * kMiB);
  REQUIRE(f.Stats().reserved_bytes < 64 * kMiB);
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

TEST_CASE("growing as needed fills the device as far as preallocation (tensorflow 6111, 26218)",
          "[release][reports]") {
  // Bytes in use and asked for when a random program's first request fails.
  const auto reached = [](uint64_t preallocate, uint64_t seed) {
    HeapOptions options;
    options.preallocate = preallocate;
    HeapFixture f(Device(256 * kMiB), options);
    const Stream streams[] = {nullptr, f.NewStream()};
    std::mt19937_64 random(seed);
    std::vector<std::pair<uint64_t, Stream>> live;
    for (;;) {
      if (random() % 5 < 3 || live.empty()) {
        const Stream s = streams[random() % 2];
        const uint64_t bytes = 1 + random() % (uint64_t{1} << (14 + random() % 12));
        HeapError error;
        const uint64_t at = f.heap().Allocate(bytes, kBlockAlignment, s, &error);
        if (at == 0) return f.Stats().active_bytes + bytes;
        live.emplace_back(at, s);
      } else {
        std::swap(live[random() % live.size()], live.back());
        f.FreeAsync(live.back().first, live.back().second);
        live.pop_back();
      }
    }
  };
  const uint64_t seed = test::Seed();
  uint64_t grown = 0, preallocated = 0;
  for (uint64_t round = 0; round < 60; ++round) {
    grown += reached(0, seed + round);
    preallocated += reached(256 * kMiB, seed + round);
  }
  // Blocks get other addresses, so that one program in ten ends a little earlier, as many later.
  REQUIRE(grown >= preallocated / 100 * 98);
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
          "[release][reports]") {  // tensorflow 1578, 19571, 48545; CUDA.jl 2190; whisper.cpp 2980
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
          "[release][reports]") {  // onnxruntime 13464
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
