// What thread caches hold, for whom, and who gets it back.
#include <array>
#include <memory>

#include "tests/pool/cache_helpers.h"

namespace weir {
namespace {

using namespace test;  // NOLINT: the fixture and the helpers

// More requests than a cache holds blocks of a class: none of them gets the block.
void RequireNotReused(HeapFixture& f, uint64_t block, uint64_t bytes, Stream stream) {
  for (int i = 0; i < 70; ++i) {
    const uint64_t b = f.Allocate(bytes, stream);
    REQUIRE(b != block);
    f.Write(stream, b, bytes);
  }
}

TEST_CASE("a hit calls no driver function", "[cache]") {
  HeapFixture f;
  const CUstream s = f.NewStream();
  for (uint64_t bytes : kCachedSizes) f.FreeAsync(f.Allocate(bytes, s), s);
  sim::ResetCallCounts();
  for (int i = 0; i < 200; ++i) {
    for (uint64_t bytes : kCachedSizes) f.FreeAsync(f.Allocate(bytes, s), s);
  }
  for (const auto& [entry, count] : sim::CallCounts()) {
    INFO(entry);
    REQUIRE(count == 0);
  }
}

TEST_CASE("what a thread frees on a stream is its next block there, and nobody else's", "[cache]") {
  HeapFixture f;
  const CUstream s = f.NewStream(), other = f.NewStream();
  Worker worker;
  // Memory for all that follows: a miss would empty the caches.
  std::vector<uint64_t> blocks;
  for (Stream stream : {s, other, kAnyStream}) {
    for (uint64_t bytes : kCachedSizes) {
      for (int i = 0; i < 4; ++i) blocks.push_back(f.Allocate(bytes, stream));
    }
  }
  for (uint64_t at : blocks) f.Free(at);
  sim::RunUntilIdle();
  f.Allocate(600 * kMiB, s);  // lets the frees take effect
  sim::HoldStream(0, s);
  const uint64_t misses = f.Stats().misses;
  for (uint64_t bytes : kCachedSizes) {
    INFO(bytes);
    const uint64_t a = f.Allocate(bytes, s);
    f.Write(s, a, bytes);
    f.FreeAsync(a, s);
    REQUIRE(CachedBytes(f.heap(), s) > 0);
    REQUIRE(f.Allocate(bytes, other) != a);
    REQUIRE(f.Allocate(bytes, kAnyStream) != a);
    REQUIRE(AllocateIn(worker, f.heap(), bytes, s) != a);
    REQUIRE(f.Allocate(bytes, s) == a);
  }
  REQUIRE(f.Stats().misses == misses);
  sim::ReleaseStream(0, s);
  f.RequireNoRaces();
  f.RequireValid();
}

TEST_CASE("a second free is found while the block lies in a cache, from any thread", "[cache]") {
  HeapFixture f;
  const CUstream s = f.NewStream();
  Worker worker;
  for (uint64_t bytes : kCachedSizes) {
    INFO(bytes);
    const uint64_t a = f.Allocate(bytes, s);
    REQUIRE(f.heap().UsableSize(a) >= bytes);
    f.FreeAsync(a, s);
    const uint64_t cached = CachedBytes(f.heap(), s);
    REQUIRE(f.heap().UsableSize(a) == 0);
    REQUIRE(f.heap().FreeAsync(a, s).code == WEIR_ERROR_DOUBLE_FREE);
    REQUIRE(f.heap().Free(a).code == WEIR_ERROR_DOUBLE_FREE);
    REQUIRE(f.heap().RecordUse(a, nullptr).code == WEIR_ERROR_DOUBLE_FREE);
    REQUIRE(FreeIn(worker, f.heap(), a, s) == WEIR_ERROR_DOUBLE_FREE);
    REQUIRE(CachedBytes(f.heap(), s) == cached);
    REQUIRE(f.Allocate(bytes, s) == a);
    REQUIRE(f.Allocate(bytes, s) != a);  // it was there once
  }
  f.RequireValid();
}

TEST_CASE("a pointer that is not the begin of a block is refused by caches too", "[cache]") {
  HeapFixture f;
  const CUstream s = f.NewStream();
  const uint64_t a = f.Allocate(3 * kKiB, s), b = f.Allocate(100 * kKiB, s);
  REQUIRE(f.heap().FreeAsync(a + 1, s).code == WEIR_ERROR_NOT_OWNED);
  REQUIRE(f.heap().FreeAsync(a + 512, s).code == WEIR_ERROR_NOT_OWNED);
  REQUIRE(f.heap().FreeAsync(b + 512, s).code == WEIR_ERROR_NOT_OWNED);
  REQUIRE(f.heap().FreeAsync(b + 64 * kKiB, s).code == WEIR_ERROR_NOT_OWNED);
  // 42 objects of 3 KiB leave 2 KiB of a span.
  const uint64_t span = AlignDown(a, kSpanAlignment);
  REQUIRE_FALSE(f.heap().FreeAsync(span + 42 * 3 * kKiB, s).ok());
  REQUIRE_FALSE(f.heap().FreeAsync(span + 41 * 3 * kKiB, s).ok());  // never handed out
  REQUIRE(f.Stats().allocations == 2);
  f.RequireValid();
}

TEST_CASE("emptying the cache gives back what idle threads hold", "[cache]") {
  HeapFixture f;
  const CUstream s = f.NewStream();
  std::array<Worker, 2> workers;
  for (bool trim : {false, true}) {
    for (Worker& worker : workers) {
      for (uint64_t bytes : kCachedSizes) {
        REQUIRE(FreeIn(worker, f.heap(), AllocateIn(worker, f.heap(), bytes, s), s) == WEIR_OK);
      }
      REQUIRE(CachedIn(worker, f.heap(), s) > 256 * kKiB);
    }
    REQUIRE((trim ? f.heap().Trim(0) : f.heap().EmptyCache()).ok());
    REQUIRE(f.Stats().reserved_bytes == 0);
    REQUIRE(sim::UsedBytes(0) == 0);
    for (Worker& worker : workers) REQUIRE(CachedIn(worker, f.heap(), s) == 0);
  }
  f.RequireValid();
}

TEST_CASE("a thread that ends gives back what it cached", "[cache]") {
  HeapFixture f;
  const CUstream s = f.NewStream();
  for (uint64_t bytes : {200 * kKiB, 32 * kKiB}) {
    uint64_t at = 0;
    {
      Worker worker;
      at = AllocateIn(worker, f.heap(), bytes, s);
      REQUIRE(FreeIn(worker, f.heap(), at, s) == WEIR_OK);
    }
    const uint64_t misses = f.Stats().misses;
    REQUIRE(f.Allocate(bytes, s) == at);
    REQUIRE(f.Stats().misses == misses);
  }
  f.RequireValid();
}

TEST_CASE("no allocation fails while idle threads cache the memory", "[cache]") {
  sim::Config config;
  config.memory_bytes = 16 * kMiB;
  HeapFixture f(config);
  std::array<Worker, 3> workers;
  std::vector<Stream> streams;
  for (Worker& worker : workers) {
    const CUstream s = f.NewStream();
    std::vector<uint64_t> blocks;
    for (int i = 0; i < 16; ++i) blocks.push_back(AllocateIn(worker, f.heap(), 256 * kKiB, s));
    for (uint64_t at : blocks) REQUIRE(FreeIn(worker, f.heap(), at, s) == WEIR_OK);
    REQUIRE(CachedIn(worker, f.heap(), s) == 4 * kMiB);
  }
  const CUstream other = f.NewStream();
  const uint64_t at = f.Allocate(16 * kMiB, other);
  f.Write(other, at, 16 * kMiB);
  f.RequireNoRaces();
  f.RequireValid();
}

TEST_CASE("a cache holds no more than the option allows, and nothing where it is 0", "[cache]") {
  for (uint64_t limit : {uint64_t{0}, 64 * kKiB, kMiB}) {
    INFO(limit);
    HeapOptions options;
    options.thread_cache_bytes = limit;
    HeapFixture f({}, options);
    const CUstream s = f.NewStream();
    uint64_t most = 0;
    for (uint64_t bytes : kCachedSizes) {
      std::vector<uint64_t> blocks;
      for (int i = 0; i < 100; ++i) {
        blocks.push_back(f.Allocate(bytes, s));
        REQUIRE(CachedBytes(f.heap(), s) <= limit);
      }
      for (uint64_t at : blocks) {
        f.FreeAsync(at, s);
        REQUIRE(CachedBytes(f.heap(), s) <= limit);
        most = std::max(most, CachedBytes(f.heap(), s));
      }
    }
    REQUIRE(most >= limit / 2);
    // A record of an earlier heap at the same address may be there, unused.
    const ThreadCache* cache = ThreadCaches::Find(&f.heap(), s);
    REQUIRE((limit != 0) == (cache != nullptr && cache->Serves(&f.heap(), s)));
    f.RequireValid();
  }
}

TEST_CASE("a block with a recorded use is not cached", "[cache][order]") {
  HeapFixture f;
  const CUstream s = f.NewStream(), user = f.NewStream();
  for (uint64_t bytes : kCachedSizes) {
    INFO(bytes);
    const uint64_t a = f.Allocate(bytes, s);
    sim::HoldStream(0, user);
    f.Read(user, a, bytes);
    REQUIRE(f.heap().RecordUse(a, user).ok());
    f.FreeAsync(a, s);
    REQUIRE(f.heap().UsableSize(a) == 0);
    REQUIRE(f.heap().FreeAsync(a, s).code == WEIR_ERROR_DOUBLE_FREE);
    RequireNotReused(f, a, bytes, s);
    sim::ReleaseStream(0, user);
    sim::RunUntilIdle();
  }
  f.RequireNoRaces();
  f.RequireValid();
}

TEST_CASE("a block freed on another stream than its own is not cached", "[cache][order]") {
  HeapFixture f;
  const CUstream s = f.NewStream(), other = f.NewStream();
  for (uint64_t bytes : kCachedSizes) {
    INFO(bytes);
    const uint64_t a = f.Allocate(bytes, s);
    f.FreeAsync(f.Allocate(bytes, other), other);  // the thread's last cache is the other stream's
    const uint64_t own = CachedBytes(f.heap(), s), others = CachedBytes(f.heap(), other);
    const uint64_t deferred = f.Stats().deferred_frees;
    sim::HoldStream(0, other);
    f.Write(other, a, bytes);
    f.FreeAsync(a, other);
    REQUIRE(CachedBytes(f.heap(), s) == own);
    REQUIRE(CachedBytes(f.heap(), other) == others);
    REQUIRE(f.Stats().deferred_frees == deferred + 1);
    RequireNotReused(f, a, bytes, s);
    sim::ReleaseStream(0, other);
    sim::RunUntilIdle();
  }
  f.RequireNoRaces();
  f.RequireValid();
}

TEST_CASE("a request with an alignment gets it, whatever lies in the cache", "[cache]") {
  HeapFixture f;
  const CUstream s = f.NewStream();
  std::vector<uint64_t> blocks;
  for (uint64_t bytes = 33 * kKiB; bytes <= 256 * kKiB; bytes += 512 + 7 * kKiB) {
    for (int i = 0; i < 3; ++i) blocks.push_back(f.Allocate(bytes, s));
  }
  for (uint64_t at : blocks) f.FreeAsync(at, s);
  for (uint64_t alignment : {1024, 4096, 65536, 2097152}) {
    for (uint64_t bytes = 100; bytes <= 256 * kKiB; bytes += 512 + 7 * kKiB) {
      HeapError error;
      const uint64_t at = f.heap().Allocate(bytes, alignment, s, &error);
      REQUIRE(at != 0);
      REQUIRE(at % alignment == 0);
      REQUIRE(f.heap().UsableSize(at) >= bytes);
      f.FreeAsync(at, s);  // into the cache, for requests of any alignment up to 512
      f.FreeAsync(f.Allocate(bytes, s), s);
    }
  }
  f.RequireValid();
}

}  // namespace
}  // namespace weir
