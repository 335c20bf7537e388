#include "allocator/pool/device_heap.h"

#include "tests/pool/heap_fixture.h"

namespace weir {

using test::HeapFixture;

TEST_CASE("a hit makes no driver call", "[heap]") {
  HeapFixture f;
  for (uint64_t bytes : {uint64_t{512}, 100 * kKiB, 8 * kMiB}) {
    f.FreeAsync(f.Allocate(bytes));
    sim::ResetCallCounts();
    const uint64_t at = f.Allocate(bytes);
    f.FreeAsync(at);
    REQUIRE(f.Allocate(bytes) == at);
    f.FreeAsync(at);
    REQUIRE(sim::CallCounts().empty());
  }
  f.RequireValid();
}

TEST_CASE("live blocks are distinct, aligned, and hold what is written to them", "[heap]") {
  HeapFixture f;
  std::vector<std::pair<uint64_t, uint64_t>> blocks;
  for (uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{511}, uint64_t{513}, 32 * kKiB,
                         32 * kKiB + 1, 256 * kKiB, 256 * kKiB + 1, 3 * kMiB, 40 * kMiB}) {
    for (int i = 0; i < 3; ++i) {
      const uint64_t at = f.Allocate(bytes);
      REQUIRE(at % kBlockAlignment == 0);
      REQUIRE(f.heap().UsableSize(at) >= bytes);
      for (const auto& [other, other_bytes] : blocks) {
        REQUIRE((at + std::max<uint64_t>(bytes, 1) <= other || other + other_bytes <= at));
      }
      blocks.emplace_back(at, std::max<uint64_t>(bytes, 1));
      if (bytes > 0) f.Write(nullptr, at, bytes);
    }
  }
  f.RequireNoRaces();
  f.RequireValid();
  for (const auto& block : blocks) f.FreeAsync(block.first);
  f.RequireValid();
  REQUIRE(f.Stats().requested_bytes == 0);
  REQUIRE(f.Stats().allocations == 0);
}

TEST_CASE("alignments up to 2 MiB are honoured", "[heap]") {
  HeapFixture f;
  for (uint64_t alignment = 512; alignment <= 2 * kMiB; alignment *= 2) {
    for (uint64_t bytes : {uint64_t{100}, 40 * kKiB, 5 * kMiB}) {
      HeapError error;
      const uint64_t at = f.heap().Allocate(bytes, alignment, nullptr, &error);
      REQUIRE(at != 0);
      REQUIRE(at % alignment == 0);
    }
  }
  f.RequireValid();
}

TEST_CASE("wrong frees are told apart and change nothing", "[heap]") {
  HeapFixture f;
  for (uint64_t bytes : {uint64_t{1000}, 100 * kKiB, 6 * kMiB}) {
    const uint64_t at = f.Allocate(bytes);
    const weir_stats_t before = f.Stats();
    REQUIRE(f.heap().FreeAsync(at + 256, nullptr).code == WEIR_ERROR_NOT_OWNED);
    REQUIRE(f.heap().FreeAsync(0x1234560000, nullptr).code == WEIR_ERROR_NOT_OWNED);
    REQUIRE(f.Stats().allocations == before.allocations);
    f.FreeAsync(at);
    REQUIRE(f.heap().FreeAsync(at, nullptr).code == WEIR_ERROR_DOUBLE_FREE);
    REQUIRE(f.heap().Free(at).code == WEIR_ERROR_DOUBLE_FREE);
    REQUIRE(f.heap().RecordUse(at, nullptr).code == WEIR_ERROR_DOUBLE_FREE);
    REQUIRE(f.heap().UsableSize(at) == 0);
    f.RequireValid();
  }
}

TEST_CASE("a pointer into the far end of a large block is not owned", "[heap]") {
  HeapFixture f;
  const uint64_t at = f.Allocate(64 * kMiB);
  REQUIRE(f.heap().FreeAsync(at + 60 * kMiB, nullptr).code == WEIR_ERROR_NOT_OWNED);
  f.FreeAsync(at);
}

TEST_CASE("a deferred block cannot be freed again", "[heap]") {
  HeapFixture f;
  for (uint64_t bytes : {uint64_t{1000}, 6 * kMiB}) {
    const uint64_t at = f.Allocate(bytes, kAnyStream);
    f.Free(at);
    REQUIRE(f.heap().Free(at).code == WEIR_ERROR_DOUBLE_FREE);
    f.RequireValid();
  }
}

TEST_CASE("statistics count requested, allocated, active and reserved bytes", "[stats]") {
  HeapFixture f;
  const uint64_t a = f.Allocate(1000), b = f.Allocate(5 * kMiB + 1);
  weir_stats_t s = f.Stats();
  REQUIRE(s.requested_bytes == 1000 + 5 * kMiB + 1);
  REQUIRE(s.allocated_bytes == 1024 + 5 * kMiB + 512);
  REQUIRE(s.active_bytes == s.allocated_bytes);
  REQUIRE(s.reserved_bytes == sim::UsedBytes(0));
  REQUIRE(s.allocations == 2);
  REQUIRE(s.cached_bytes == s.reserved_bytes - s.active_bytes);
  f.Free(b);  // any stream may use it: stays active until proved complete
  s = f.Stats();
  REQUIRE(s.allocated_bytes == 1024);
  REQUIRE(s.active_bytes == 1024 + 5 * kMiB + 512);
  REQUIRE(s.active_blocks == 2);
  REQUIRE(s.deferred_frees == 1);
  f.FreeAsync(a);
  REQUIRE(f.heap().EmptyCache().ok());
  s = f.Stats();
  REQUIRE(s.active_bytes == 0);
  REQUIRE(s.peak_requested_bytes == 1000 + 5 * kMiB + 1);
  REQUIRE(s.total_requested_bytes == 1000 + 5 * kMiB + 1);
  f.heap().ResetPeaks();
  REQUIRE(f.Stats().peak_requested_bytes == 0);
  REQUIRE(f.Stats().total_allocations == 2);
}

TEST_CASE("empty_cache releases everything that is idle", "[trim]") {
  HeapFixture f;
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 50; ++i) blocks.push_back(f.Allocate(3 * kMiB));
  const uint64_t small = f.Allocate(100);
  for (uint64_t at : blocks) f.FreeAsync(at);
  REQUIRE(f.heap().EmptyCache().ok());
  f.RequireValid();
  REQUIRE(f.Stats().reserved_bytes == 2 * kMiB);  // the granule of the small object
  REQUIRE(sim::UsedBytes(0) == 2 * kMiB);
  f.FreeAsync(small);
  REQUIRE(f.heap().EmptyCache().ok());
  REQUIRE(sim::UsedBytes(0) == 0);
  f.RequireValid();
  f.FreeAsync(f.Allocate(3 * kMiB));  // and the heap goes on
}

TEST_CASE("trim stops when no more than the bytes to keep are reserved", "[trim]") {
  HeapFixture f;
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 32; ++i) blocks.push_back(f.Allocate(2 * kMiB));
  for (uint64_t at : blocks) f.FreeAsync(at);
  REQUIRE(f.heap().Trim(20 * kMiB).ok());
  REQUIRE(f.Stats().reserved_bytes == 20 * kMiB);
  REQUIRE(f.heap().Trim(40 * kMiB).ok());
  REQUIRE(f.Stats().reserved_bytes == 20 * kMiB);
  f.RequireValid();
}

TEST_CASE("empty_cache waits for frees that are still in use", "[trim]") {
  HeapFixture f;
  const CUstream side = f.NewStream();
  const uint64_t at = f.Allocate(8 * kMiB);
  f.Write(side, at, 8 * kMiB);
  REQUIRE(f.heap().RecordUse(at, side).ok());
  f.FreeAsync(at);
  REQUIRE(f.heap().EmptyCache().ok());
  REQUIRE(sim::UsedBytes(0) == 0);
  f.RequireNoRaces();
}

TEST_CASE("the heap works on a device without memory mapping", "[classic]") {
  sim::Config config;
  config.vmm = false;
  HeapFixture f(config);
  REQUIRE_FALSE(f.heap().driver().has_vmm());
  std::vector<uint64_t> blocks;
  for (uint64_t bytes : {uint64_t{700}, 100 * kKiB, 3 * kMiB, 50 * kMiB}) {
    for (int i = 0; i < 4; ++i) blocks.push_back(f.Allocate(bytes));
  }
  f.RequireValid();
  const uint64_t reserved = f.Stats().reserved_bytes;
  for (uint64_t at : blocks) f.FreeAsync(at);
  REQUIRE(f.Allocate(50 * kMiB) != 0);
  REQUIRE(f.Stats().reserved_bytes == reserved);
  REQUIRE(f.heap().EmptyCache().ok());
  f.RequireValid();
  REQUIRE(f.Stats().reserved_bytes < reserved);
  REQUIRE(sim::CallCount("cuMemCreate") == 0);
}

}  // namespace weir
