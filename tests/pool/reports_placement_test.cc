// Failures of placement that users of other allocators reported, each as a rule that holds here: no
// request fails, and no memory is made, while what is free suffices.
#include <algorithm>
#include <random>

#include "tests/pool/heap_fixture.h"
#include "tests/pool/preset.h"
#include "tests/support/seed.h"

namespace weir {

using test::Device;
using test::HeapFixture;
using test::OptionsFrom;

TEST_CASE("an emptied cache holds no more than the granules in use (pytorch 46379, 69526)",
          "[reports]") {
  HeapFixture f;
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(f.Allocate(5 * kMiB));
  const uint64_t kept = blocks[50];
  for (uint64_t at : blocks) {
    if (at != kept) f.FreeAsync(at);
  }
  REQUIRE(f.heap().EmptyCache().ok());
  REQUIRE(f.Stats().reserved_bytes <= 8 * kMiB);  // 5 MiB touch up to four granules
  REQUIRE(sim::UsedBytes(0) == f.Stats().reserved_bytes);
}

TEST_CASE("idle memory of every stream is used before a request fails (pytorch 110194, mlx 2869)",
          "[reports]") {
  const bool vmm = GENERATE(true, false);
  HeapOptions options;
  options.vmm = vmm;
  HeapFixture f(Device(512 * kMiB), options);
  for (int i = 0; i < 8; ++i) {
    const CUstream s = f.NewStream();
    std::vector<uint64_t> blocks;
    for (int j = 0; j < 3; ++j) {
      blocks.push_back(f.Allocate(20 * kMiB, s));
      f.Write(s, blocks.back(), 20 * kMiB);
    }
    for (uint64_t at : blocks) f.FreeAsync(at, s);
  }
  const uint64_t at = f.Allocate(500 * kMiB);
  f.Write(nullptr, at, 500 * kMiB);
  f.RequireNoRaces();
  f.RequireValid();
}

TEST_CASE("a free part of a larger block serves a smaller request (onnxruntime 14474)",
          "[reports]") {
  HeapFixture f;
  f.FreeAsync(f.Allocate(400 * kMiB));
  const uint64_t before = f.Stats().reserved_bytes;
  for (int i = 0; i < 39; ++i) f.Allocate(static_cast<uint64_t>(10240 - i) * kKiB);
  REQUIRE(f.Stats().reserved_bytes == before);
}

TEST_CASE("memory grows by what is asked, not by powers of two (onnxruntime 15983)", "[reports]") {
  HeapFixture f(Device(20ull * 1024 * kMiB));
  for (int i = 0; i < 17; ++i) f.Allocate(1000 * kMiB);
  const weir_stats_t s = f.Stats();
  REQUIRE(s.reserved_bytes <= s.active_bytes + s.active_bytes / 20);
}

TEST_CASE("sizes that grow leave nothing behind (llama.cpp 22107, 23446)",
          "[reports]") {  // llama.cpp 19979
  HeapFixture f(Device(300 * kMiB));
  uint64_t at = f.Allocate(2 * kMiB);
  for (uint64_t mib = 3; mib < 140; ++mib) {
    const uint64_t next = f.Allocate(mib * kMiB);  // both live: at most 2 * 139 MiB
    f.FreeAsync(at);
    at = next;
  }
  REQUIRE(f.Stats().reserved_bytes <= 300 * kMiB);
  f.RequireValid();
}

TEST_CASE("what one stream left serves another before new memory is made (pytorch 109863)",
          "[reports]") {  // vllm 52951
  HeapFixture f;
  const CUstream streams[] = {f.NewStream(), f.NewStream(), f.NewStream()};
  for (int i = 0; i < 12; ++i) {
    const CUstream s = streams[i % 3];
    std::vector<uint64_t> blocks;
    // Whole, and in pieces: the pieces of one stream serve the large block of the next.
    const uint64_t pieces = i % 2 == 0 ? 1 : 16;
    for (uint64_t j = 0; j < pieces; ++j) {
      blocks.push_back(f.Allocate(1024 * kMiB / pieces, s));
      f.Write(s, blocks.back(), 1024 * kMiB / pieces);
    }
    for (uint64_t at : blocks) f.FreeAsync(at, s);
    sim::RunUntilIdle();
  }
  // So many moves wear the guard out: soft_limit_max.
  REQUIRE(f.Stats().peak_reserved_bytes <= 1024 * kMiB * 115 / 100 + 8 * kMiB);
  REQUIRE(f.Stats().waits == 0);
  f.RequireNoRaces();
  f.RequireValid();
}

TEST_CASE("a large block that lives does not keep the rest of its segment (vllm 41268)",
          "[reports]") {
  HeapFixture f(Device(530 * kMiB));
  const CUstream s = f.NewStream(), t = f.NewStream();
  f.FreeAsync(f.Allocate(530 * kMiB, s), s);
  const uint64_t lives = f.Allocate(270 * kMiB, s);
  const uint64_t rest = f.Allocate(260 * kMiB, t);
  f.Write(s, lives, 270 * kMiB);
  f.Write(t, rest, 260 * kMiB);
  f.RequireNoRaces();
  f.RequireValid();
}

TEST_CASE("two streams that take turns do not break up the memory they share (rmm 2039)",
          "[reports]") {
  HeapFixture f(Device(256 * kMiB));
  std::mt19937_64 random(test::Seed());
  const CUstream streams[] = {f.NewStream(), f.NewStream()};
  std::vector<std::pair<uint64_t, CUstream>> blocks;
  for (int round = 0; round < 30; ++round) {
    // Blocks of both, side by side in time; then nearly everything is asked for at once by one.
    for (int i = 0; i < 40; ++i) {
      const CUstream s = streams[i % 2];
      const uint64_t bytes = 2 * kMiB * (1 + random() % 3);
      blocks.emplace_back(f.Allocate(bytes, s), s);
      f.Write(s, blocks.back().first, bytes);
    }
    std::shuffle(blocks.begin(), blocks.end(), random);
    for (const auto& [at, s] : blocks) f.FreeAsync(at, s);
    blocks.clear();
    const CUstream s = streams[round % 2];
    const uint64_t all = f.Allocate(256 * kMiB, s);
    f.Write(s, all, 256 * kMiB);
    f.FreeAsync(all, s);
  }
  f.RequireNoRaces();
  f.RequireValid();
}

TEST_CASE("a request fits as long as so much is free, however cut up (rmm 1245)",
          "[reports]") {  // 31 of 84.5 GB were free, and 133 MB failed
  const bool tight = GENERATE(false, true);
  const uint64_t device = 8450 * kMiB;
  HeapFixture f(Device(device), OptionsFrom(tight ? "mode:tight" : "mode:default"));
  std::mt19937_64 random(test::Seed());
  const Stream streams[] = {f.NewStream(), f.NewStream(), f.NewStream()};
  std::vector<std::pair<uint64_t, Stream>> blocks;
  while (f.Stats().active_bytes < device - 400 * kMiB) {
    const Stream s = streams[random() % 3];
    blocks.emplace_back(f.Allocate(2 * kMiB * (1 + random() % 60), s), s);
  }
  std::shuffle(blocks.begin(), blocks.end(), random);
  while (f.Stats().active_bytes > 5350 * kMiB) {
    f.FreeAsync(blocks.back().first, blocks.back().second);
    blocks.pop_back();
  }
  // One granule a handle: to the last byte. Larger handles keep some of what is free.
  const uint64_t least = tight ? 134 * kMiB : 1000 * kMiB;
  while (device - f.Stats().active_bytes >= least) f.Allocate(134 * kMiB, streams[random() % 3]);
  f.RequireValid();
}

TEST_CASE("blocks freed in any order are one again, and no free takes memory (opencv 11298)",
          "[reports]") {  // opencv 21939; Umpire 906, 844, 846
  HeapFixture f(Device(256 * kMiB));
  std::mt19937_64 random(test::Seed());
  for (int round = 0; round < 5; ++round) {
    std::vector<uint64_t> blocks;
    HeapError error;
    while (const uint64_t at =
               f.heap().Allocate(1 + random() % (3 * kMiB), kBlockAlignment, nullptr, &error)) {
      blocks.push_back(at);
    }
    REQUIRE(error.code == WEIR_ERROR_OUT_OF_MEMORY);
    std::shuffle(blocks.begin(), blocks.end(), random);
    sim::ResetCallCounts();
    for (uint64_t at : blocks) f.FreeAsync(at);
    REQUIRE(sim::CallCounts().empty());
    f.FreeAsync(f.Allocate(256 * kMiB));
  }
  f.RequireValid();
}

}  // namespace weir
