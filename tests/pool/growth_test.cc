// How far reserved memory grows, and what happens at a limit.
#include "allocator/pool/growth_policy.h"
#include "tests/pool/heap_fixture.h"

namespace weir {

using test::HeapFixture;

TEST_CASE("beyond the soft limit idle memory moves instead of new memory being made", "[growth]") {
  HeapFixture f;
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(f.Allocate(10 * kMiB));
  for (size_t i = 0; i < blocks.size(); i += 2) f.FreeAsync(blocks[i]);
  // Half is free, in pieces of 10 MiB; a block of 200 MiB needs pages of many of them.
  const uint64_t at = f.Allocate(200 * kMiB);
  f.Write(nullptr, at, 200 * kMiB);
  const weir_stats_t s = f.Stats();
  REQUIRE(s.reserved_bytes <= s.peak_active_bytes * 105 / 100 + 8 * kMiB);
  REQUIRE(s.remapped_bytes > 0);
  f.RequireNoRaces();
  f.RequireValid();
}

TEST_CASE("who gives everything back begins anew: earlier peaks do not let memory grow",
          "[growth]") {
  HeapFixture f;
  f.FreeAsync(f.Allocate(4 * kGiB));
  REQUIRE(f.heap().EmptyCache().ok());
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(f.Allocate(10 * kMiB));
  for (size_t i = 0; i < blocks.size(); i += 2) f.FreeAsync(blocks[i]);
  f.Allocate(200 * kMiB);
  const weir_stats_t s = f.Stats();
  REQUIRE(s.reserved_bytes <= 1000 * kMiB * 105 / 100 + 8 * kMiB);
  REQUIRE(s.remapped_bytes > 0);
  f.RequireValid();
}

TEST_CASE("a request that fails does not raise the soft limit", "[growth]") {
  sim::Config config;
  config.memory_bytes = kGiB;
  HeapFixture f(config);
  const uint64_t held = f.Allocate(100 * kMiB);
  HeapError error;
  REQUIRE(f.heap().Allocate(1000 * kMiB, 512, nullptr, &error) == 0);
  f.FreeAsync(held);
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 30; ++i) blocks.push_back(f.Allocate(10 * kMiB));
  for (size_t i = 0; i < blocks.size(); i += 2) f.FreeAsync(blocks[i]);
  f.Allocate(60 * kMiB);
  const weir_stats_t s = f.Stats();
  REQUIRE(s.reserved_bytes <= s.peak_active_bytes * 105 / 100 + 8 * kMiB);
  f.RequireValid();
}

TEST_CASE("a free granule at any address can serve a request at the limit (jax 13428)",
          "[growth][reports]") {  // marin 7115
  sim::Config config;
  config.memory_bytes = 128 * kMiB;
  HeapFixture f(config);
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 64; ++i) blocks.push_back(f.Allocate(2 * kMiB));
  for (size_t i = 0; i < 64; i += 2) f.FreeAsync(blocks[i]);
  const uint64_t at = f.Allocate(64 * kMiB);  // exactly what is free, in 32 scattered granules
  f.Write(nullptr, at, 64 * kMiB);
  f.RequireNoRaces();
  f.RequireValid();
  REQUIRE(f.Stats().reserved_bytes == 128 * kMiB);
}

TEST_CASE("a request that does not fit fails with figures and changes nothing", "[growth]") {
  sim::Config config;
  config.memory_bytes = 128 * kMiB;
  HeapFixture f(config);
  const uint64_t a = f.Allocate(100 * kMiB);
  const weir_stats_t before = f.Stats();
  HeapError error;
  for (int i = 0; i < 2; ++i) {
    REQUIRE(f.heap().Allocate(40 * kMiB, 512, nullptr, &error) == 0);
    REQUIRE(error.code == WEIR_ERROR_OUT_OF_MEMORY);
    REQUIRE(error.text.find("41943040 bytes asked") != std::string::npos);
  }
  REQUIRE(f.heap().Allocate(UINT64_MAX, 512, nullptr, &error) == 0);
  REQUIRE(error.code == WEIR_ERROR_OUT_OF_MEMORY);
  const weir_stats_t after = f.Stats();
  REQUIRE(after.reserved_bytes == before.reserved_bytes);
  REQUIRE(after.allocations == 1);
  REQUIRE(after.out_of_memory == 3);
  f.RequireValid();
  f.FreeAsync(a);
  f.Allocate(110 * kMiB);
}

TEST_CASE("the memory limit is never exceeded, and can be raised", "[growth]") {
  HeapOptions options;
  options.memory_limit = 100 * kMiB;
  HeapFixture f({}, options);
  const uint64_t a = f.Allocate(60 * kMiB);
  HeapError error;
  REQUIRE(f.heap().Allocate(60 * kMiB, 512, nullptr, &error) == 0);
  REQUIRE(error.text.find("limit") != std::string::npos);
  REQUIRE(f.Stats().peak_reserved_bytes <= 100 * kMiB);
  f.heap().SetMemoryLimit(200 * kMiB);
  f.FreeAsync(f.Allocate(60 * kMiB));
  f.FreeAsync(a);
}

TEST_CASE("memory that another process took is not counted on (CUDA.jl 1670)",
          "[growth][reports]") {
  sim::Config config;
  config.memory_bytes = 256 * kMiB;
  HeapFixture f(config);
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 32; ++i) blocks.push_back(f.Allocate(4 * kMiB));
  for (size_t i = 0; i < 32; i += 2) f.FreeAsync(blocks[i]);
  sim::SetOtherProcessBytes(0, 128 * kMiB);  // nothing is left but what lies idle here
  const uint64_t at = f.Allocate(60 * kMiB);
  f.Write(nullptr, at, 60 * kMiB);
  f.RequireNoRaces();
  f.RequireValid();
}

TEST_CASE("idle memory and what another process left are used together", "[growth]") {
  sim::Config config;
  config.memory_bytes = 256 * kMiB;
  HeapFixture f(config);
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 32; ++i) blocks.push_back(f.Allocate(4 * kMiB));
  for (size_t i = 0; i < 32; i += 2) f.FreeAsync(blocks[i]);
  sim::SetOtherProcessBytes(0, 100 * kMiB);
  const uint64_t at = f.Allocate(90 * kMiB);  // 64 lie idle here, 28 are free on the device
  f.Write(nullptr, at, 90 * kMiB);
  f.RequireNoRaces();
  f.RequireValid();
}

TEST_CASE("deferred frees are waited for before a request fails", "[growth]") {
  sim::Config config;
  config.memory_bytes = 64 * kMiB;
  HeapFixture f(config);
  const CUstream side = f.NewStream();
  const uint64_t a = f.Allocate(50 * kMiB);
  f.Write(side, a, 50 * kMiB);
  REQUIRE(f.heap().RecordUse(a, side).ok());
  f.FreeAsync(a);
  const uint64_t b = f.Allocate(50 * kMiB);
  f.Write(nullptr, b, 50 * kMiB);
  REQUIRE(f.Stats().waits > 0);
  f.RequireNoRaces();
}

TEST_CASE("streams that come and go do not use up the address space", "[growth]") {
  sim::Config config;
  config.memory_bytes = 64 * kMiB;
  HeapFixture f(config);
  for (int i = 0; i < 200; ++i) {  // 64 chunks of addresses, two for each stream
    const CUstream stream = f.NewStream();
    const uint64_t large = f.Allocate(30 * kMiB, stream), small = f.Allocate(1000, stream);
    f.Write(stream, large, 30 * kMiB);
    f.FreeAsync(large, stream);
    f.FreeAsync(small, stream);
    REQUIRE(f.heap().StreamDestroyed(stream).ok());
    f.device().DestroyStream(stream);
  }
  f.RequireNoRaces();
  f.RequireValid();
}

TEST_CASE("many living streams that hold little do not use up the address space", "[growth]") {
  HeapFixture f;
  for (int i = 0; i < 1200; ++i) {  // more than the chunks of the reservation, two for each stream
    const CUstream stream = f.NewStream();
    const uint64_t large = f.Allocate(kMiB, stream), small = f.Allocate(64 * kKiB, stream);
    f.FreeAsync(large, stream);
    f.FreeAsync(small, stream);
  }
  f.RequireValid();
}

TEST_CASE("a request that fails counts nothing as reserved", "[growth]") {
  sim::Config config;
  config.memory_bytes = 64 * kMiB;
  HeapFixture f(config);
  f.FreeAsync(f.Allocate(2 * kMiB));
  sim::SetOtherProcessBytes(0, 50 * kMiB);
  HeapError error;
  REQUIRE(f.heap().Allocate(40 * kMiB, 512, nullptr, &error) == 0);
  REQUIRE(f.Stats().peak_reserved_bytes <= 14 * kMiB);
  REQUIRE(f.Stats().total_reserved_bytes <= 14 * kMiB);
  f.RequireValid();
}

TEST_CASE("handles grow with the heap, so their number stays bounded", "[growth]") {
  HeapFixture f;
  for (int i = 0; i < 2000; ++i) f.Allocate(10 * kMiB);
  REQUIRE(f.Stats().handles < 5000);
  f.RequireValid();
}

TEST_CASE("moving memory costs tokens; without any the soft limit is wider", "[guard]") {
  HeapOptions options;
  GrowthPolicy policy(options);
  policy.OnActive(1000 * kMiB);
  REQUIRE(policy.SoftLimit(80 * kGiB) == static_cast<uint64_t>(1050 * kMiB) + 8 * kMiB);
  policy.Charge(101'000'000);
  REQUIRE_FALSE(policy.moving_is_affordable());
  REQUIRE(policy.SoftLimit(80 * kGiB) >= 1149 * kMiB);
  for (int i = 0; i < 300; ++i) policy.OnLargeRequest(0);
  REQUIRE(policy.moving_is_affordable());
}

TEST_CASE("the soft limit forgets a peak that is long past, and not before", "[guard]") {
  GrowthPolicy policy{HeapOptions()};
  policy.OnActive(1000 * kMiB);
  const uint64_t limit = policy.SoftLimit(80 * kGiB);
  for (int i = 0; i < 65536; ++i) policy.OnLargeRequest(10 * kMiB);
  REQUIRE(policy.SoftLimit(80 * kGiB) == limit);
  for (int i = 0; i < 65536; ++i) policy.OnLargeRequest(10 * kMiB);
  REQUIRE(policy.SoftLimit(80 * kGiB) < 20 * kMiB);
}

TEST_CASE("resetting the peak statistics does not change how far memory grows", "[growth]") {
  uint64_t reserved[2] = {};
  for (const bool reset : {false, true}) {
    HeapFixture f;
    const uint64_t low = f.Allocate(100 * kMiB), high = f.Allocate(100 * kMiB);
    f.FreeAsync(high);
    f.FreeAsync(f.Allocate(10 * kMiB));
    if (reset) f.heap().ResetPeaks();
    const uint64_t after = f.Allocate(101 * kMiB);
    reserved[reset ? 1 : 0] = f.Stats().reserved_bytes;
    f.FreeAsync(after);
    f.FreeAsync(low);
  }
  REQUIRE(reserved[0] == reserved[1]);
}

}  // namespace weir
