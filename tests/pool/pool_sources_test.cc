// Pools with a source of their own, and pools that do not split: where memory comes from, and that
// all of it goes back there, once.
#include <thread>

#include "tests/pool/pool_source.h"

namespace weir::test {
namespace {

using Asked = std::vector<size_t>;

sim::Config SmallDevice() { return Device(256 * kMiB); }

class SourceFixture : public CaptureFixture {
 public:
  explicit SourceFixture(const sim::Config& config = SmallDevice(), const HeapOptions& options = {})
      : CaptureFixture(config, options) {}
  PoolSource source{device()};

  uint64_t AllocateIn(uint64_t pool, uint64_t bytes, Stream stream = nullptr) {
    Begin(pool);
    const uint64_t at = Allocate(bytes, stream);
    End(pool);
    return at;
  }
  HeapError FailIn(uint64_t pool, uint64_t bytes) {
    Begin(pool);
    HeapError error;
    REQUIRE(heap().Allocate(bytes, kBlockAlignment, nullptr, &error) == 0);
    End(pool);
    return error;
  }
  // Everything went back once.
  void RequireSourceIsWhole() {
    CHECK(source.segments() == 0);
    CHECK(source.wrong() == 0);
    CHECK(source.returned() == static_cast<int>(source.asked().size()));
  }
};

TEST_CASE("a pool with a source holds segments of it in PyTorch's sizes, and nothing else",
          "[sources]") {
  SourceFixture f;
  const uint64_t pool = f.NewPool(f.source.Options());
  std::vector<uint64_t> blocks;
  for (const uint64_t bytes :
       {uint64_t{1}, uint64_t{40000}, uint64_t{300000}, 3 * kMiB, 18 * kMiB, 21 * kMiB}) {
    INFO(bytes);
    blocks.push_back(f.AllocateIn(pool, bytes));
    CHECK(f.source.Has(blocks.back(), bytes));
    CHECK(CaptureFixture::PoolOf(blocks.back()) == pool);
  }
  CHECK(f.source.asked() == Asked{2 * kMiB, 2 * kMiB, 20 * kMiB, 18 * kMiB, 22 * kMiB});
  CHECK(f.Stats().reserved_bytes == f.source.bytes());
  f.RequireValid();

  const uint64_t ordinary = f.Allocate(300000);
  CHECK_FALSE(f.source.Has(ordinary, 1));
  f.FreeAsync(ordinary);
  for (const uint64_t at : blocks) f.FreeAsync(at);
  CHECK(f.heap().EmptyCache().ok());  // which leaves pools alone
  CHECK(f.source.segments() == 5);
  const uint64_t again = f.AllocateIn(pool, 3 * kMiB);
  CHECK(f.source.Has(again, 3 * kMiB));
  CHECK(f.source.segments() == 5);
  f.FreeAsync(again);
  CHECK(f.heap().EmptyPool(pool).ok());
  f.RequireSourceIsWhole();
  CHECK(f.Stats().reserved_bytes == 0);
  f.Release(pool);
  f.RequireAllIsGivenBack();
}

TEST_CASE("a block that outlives its pool is freed as usual, and its segment goes to the source",
          "[sources]") {
  SourceFixture f;
  const uint64_t pool = f.NewPool(f.source.Options());
  const CUstream stream = f.NewStream();
  const uint64_t kept = f.AllocateIn(pool, 3 * kMiB, stream), small = f.AllocateIn(pool, 100);
  f.FreeAsync(f.AllocateIn(pool, 30 * kMiB, stream), stream);
  CHECK(f.source.segments() == 3);
  f.Release(pool);
  CHECK(f.source.segments() == 2);  // what was idle went at once
  const uint64_t ordinary = f.Allocate(3 * kMiB, stream);
  CHECK_FALSE(f.source.Has(ordinary, 1));
  f.FreeAsync(ordinary, stream);
  CHECK(f.heap().EmptyCache().ok());
  CHECK(f.source.segments() == 2);
  f.RequireValid();

  SECTION("with the free of its last block if there is nothing to wait for") {
    f.FreeAsync(kept, stream);
    CHECK(f.source.segments() == 1);
    f.Free(small);
  }
  SECTION("also when it is freed in the order of its own stream") {
    CHECK(f.heap().FreeOrdered(kept).ok());
    CHECK(f.source.segments() == 1);
    CHECK(f.heap().FreeOrdered(small).ok());
    CHECK(f.source.segments() == 0);
  }
  SECTION("with the next trim if there is") {
    f.Write(stream, kept, 100);
    sim::HoldStream(0, stream);
    f.FreeAsync(kept, stream);
    CHECK(f.source.segments() == 2);
    sim::ReleaseStream(0, stream);
    CHECK(f.heap().EmptyCache().ok());
    f.Free(small);
  }
  SECTION("when the pool is emptied") {
    f.Write(stream, kept, 100);
    f.FreeAsync(kept, stream);
    f.FreeAsync(small);
    CHECK(f.heap().EmptyPool(pool).ok());
  }
  f.RequireSourceIsWhole();
  CHECK(f.heap().EmptyPool(pool).ok());  // nothing is left of it
  CHECK(f.heap().EmptyPool(pool + 1).code == WEIR_ERROR_INVALID_ARGUMENT);
  f.RequireNoRaces();
  f.RequireAllIsGivenBack();
}

TEST_CASE("what a released pool has idle goes back before an ordinary request fails", "[sources]") {
  SourceFixture f;
  const uint64_t pool = f.NewPool(f.source.Options());
  const CUstream stream = f.NewStream();
  const uint64_t at = f.AllocateIn(pool, 200 * kMiB, stream);
  f.Release(pool);
  f.Write(stream, at, 200 * kMiB);
  sim::HoldStream(0, stream);
  f.FreeAsync(at, stream);
  CHECK(f.source.segments() == 1);
  sim::ReleaseStream(0, stream);
  f.FreeAsync(f.Allocate(200 * kMiB));
  f.RequireSourceIsWhole();
  f.RequireNoRaces();
  f.RequireAllIsGivenBack();
}

TEST_CASE("a source that has nothing, and limits, are clear errors after the pool's idle memory",
          "[sources]") {
  SourceFixture f;
  const uint64_t pool = f.NewPool(f.source.Options());
  SECTION("the source's own") {
    f.source.limit = 30 * kMiB;
    const uint64_t at = f.AllocateIn(pool, 20 * kMiB);
    const HeapError error = f.FailIn(pool, 20 * kMiB);
    INFO(error.text);
    CHECK(error.code == WEIR_ERROR_OUT_OF_MEMORY);
    CHECK(error.text.find("the source of the pool returned NULL for a segment of 20.0 MiB") !=
          std::string::npos);
    f.FreeAsync(at);
    f.FreeAsync(f.AllocateIn(pool, 30 * kMiB));  // for which the other segment goes back
    CHECK(f.source.segments() == 1);
  }
  SECTION("the pool's limit") {
    REQUIRE(f.heap().SetPoolLimit(pool, 30 * kMiB).ok());
    const uint64_t at = f.AllocateIn(pool, 20 * kMiB);
    const HeapError error = f.FailIn(pool, 20 * kMiB);
    CHECK(error.code == WEIR_ERROR_OUT_OF_MEMORY);
    CHECK(error.text.find("the limit of the capture pool") != std::string::npos);
    CHECK(f.source.asked() == Asked{20 * kMiB});
    f.FreeAsync(at);
    f.FreeAsync(f.AllocateIn(pool, 30 * kMiB));
  }
  SECTION("the memory limit") {
    f.heap().SetMemoryLimit(30 * kMiB);
    const uint64_t at = f.AllocateIn(pool, 20 * kMiB);
    CHECK(f.FailIn(pool, 20 * kMiB).code == WEIR_ERROR_OUT_OF_MEMORY);
    CHECK(f.source.asked() == Asked{20 * kMiB});
    f.FreeAsync(at);
    f.heap().SetMemoryLimit(UINT64_MAX);
  }
  CHECK(f.heap().EmptyPool(pool).ok());
  CHECK(f.source.segments() == 0);
  CHECK(f.source.wrong() == 0);
  f.Release(pool);
  f.RequireAllIsGivenBack();
}

TEST_CASE("memory of a source does not count for the device's size", "[sources]") {
  SourceFixture f;
  uint64_t next = uint64_t{1} << 45;  // as managed memory: never touched here
  f.source.make = [&](size_t bytes) { return std::exchange(next, next + bytes); };
  const uint64_t pool = f.NewPool(f.source.Options());
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(f.AllocateIn(pool, 200 * kMiB));
  f.FreeAsync(f.Allocate(200 * kMiB));
  for (const uint64_t at : blocks) f.FreeAsync(at);
  f.Release(pool);
  f.RequireSourceIsWhole();
  f.RequireAllIsGivenBack();
}

TEST_CASE("a source may take its segments from Weir itself", "[sources]") {
  const bool vmm = GENERATE(true, false);
  SourceFixture f(Device(256 * kMiB, vmm));
  f.source.make = [&](size_t bytes) { return f.Allocate(bytes); };
  f.source.end = [&](uint64_t at, size_t) { f.Free(at); };
  const uint64_t pool = f.NewPool(f.source.Options());
  const uint64_t at = f.AllocateIn(pool, 3 * kMiB), small = f.AllocateIn(pool, 100);
  CHECK(CaptureFixture::PoolOf(at) == pool);
  CHECK(f.source.Has(at, 3 * kMiB));
  f.RequireValid();
  f.FreeAsync(at);
  f.RequireValid();
  f.Free(small);
  f.Release(pool);
  f.RequireAllIsGivenBack();
  f.RequireSourceIsWhole();
}

TEST_CASE("what a source must not return is refused, and goes back", "[sources]") {
  SourceFixture f;
  const uint64_t pool = f.NewPool(f.source.Options());
  SECTION("what is not aligned") {
    uint64_t base = 0;
    f.source.make = [&](size_t bytes) { return (base = f.Allocate(bytes + 512)) + 64; };
    f.source.end = [&](uint64_t, size_t) { f.Free(base); };
    CHECK(f.FailIn(pool, kMiB).text.find("not aligned to 512 bytes") != std::string::npos);
    CHECK(f.source.returned() == 1);
  }
  SECTION("the same once more") {
    const uint64_t base = f.Allocate(20 * kMiB);
    f.source.make = [&](size_t) { return base; };
    const uint64_t first = f.AllocateIn(pool, 3 * kMiB);
    const uint64_t second = f.AllocateIn(pool, 16 * kMiB);
    const HeapError error = f.FailIn(pool, 3 * kMiB);
    CHECK(error.code == WEIR_ERROR_INVALID_ARGUMENT);
    CHECK(error.text.find("given before and not got back") != std::string::npos);
    CHECK(f.source.returned() == 0);
    f.FreeAsync(first);
    f.FreeAsync(second);
    CHECK(f.heap().EmptyPool(pool).ok());
    f.Free(base);
  }
  SECTION("memory of Weir that is no block") {
    const uint64_t base = f.Allocate(3 * kMiB);
    f.source.make = [&](size_t) { return base; };
    CHECK(f.FailIn(pool, 3 * kMiB).text.find("not of one block") != std::string::npos);
    f.Free(base);
  }
  CHECK(f.source.wrong() == 0);
  f.Release(pool);
  f.RequireAllIsGivenBack();
}

TEST_CASE("a pool that does not split hands out whole segments, the smallest that is large enough",
          "[sources]") {
  const bool with_source = GENERATE(false, true);
  SourceFixture f;
  weir_pool_options_t options = with_source ? f.source.Options() : weir_pool_options_t{};
  options.no_split = 1;
  const uint64_t pool = f.NewPool(options);
  const uint64_t tiny = f.AllocateIn(pool, 100), small = f.AllocateIn(pool, kMiB);
  const uint64_t middle = f.AllocateIn(pool, 3 * kMiB), large = f.AllocateIn(pool, 30 * kMiB);
  CHECK(f.heap().UsableSize(tiny) == 2 * kMiB);
  CHECK(f.heap().UsableSize(small) == 2 * kMiB);
  CHECK(f.heap().UsableSize(middle) == 20 * kMiB);
  CHECK(f.heap().UsableSize(large) == 30 * kMiB);
  if (with_source) CHECK(f.source.asked() == Asked{2 * kMiB, 2 * kMiB, 20 * kMiB, 30 * kMiB});
  const weir_stats_t stats = f.Stats();
  CHECK(stats.handles == 4);
  CHECK(stats.reserved_bytes == 54 * kMiB);
  CHECK(stats.requested_bytes == 100 + kMiB + 33 * kMiB);
  f.RequireValid();

  f.FreeAsync(large);
  f.FreeAsync(middle);
  CHECK(f.AllocateIn(pool, 21 * kMiB) == large);
  CHECK(f.AllocateIn(pool, 2 * kMiB) == middle);
  f.FreeAsync(middle);
  f.FreeAsync(large);
  f.FreeAsync(tiny);
  const uint64_t other = f.AllocateIn(pool, 2 * kMiB);  // no small segment, however idle
  CHECK(other == middle);
  f.FreeAsync(other);
  f.FreeAsync(small);
  CHECK(f.heap().SetPoolNoSplit(pool).ok());
  f.Release(pool);
  CHECK(f.source.segments() == 0);
  CHECK(f.Stats().reserved_bytes == 0);  // the driver's went back too, being nobody's supply
  f.RequireAllIsGivenBack();
}

TEST_CASE("splitting can be given up until the pool's first allocation", "[sources]") {
  SourceFixture f;
  const uint64_t pool = f.NewPool();
  REQUIRE(f.heap().SetPoolNoSplit(pool).ok());
  const uint64_t at = f.AllocateIn(pool, 100);
  CHECK(f.heap().UsableSize(at) == 2 * kMiB);
  f.FreeAsync(at);
  f.Release(pool);
  const uint64_t late = f.NewPool();
  f.FreeAsync(f.AllocateIn(late, 100));
  CHECK(f.heap().SetPoolNoSplit(late).code == WEIR_ERROR_INVALID_ARGUMENT);
  f.Release(late);
  f.RequireAllIsGivenBack();
}

TEST_CASE("emptying a pool gives its idle memory to the driver, during its life and after",
          "[sources]") {
  SourceFixture f;
  const uint64_t pool = f.NewPool();
  const CUstream stream = f.NewStream();
  const uint64_t kept = f.AllocateIn(pool, 4 * kMiB, stream);
  const uint64_t freed = f.AllocateIn(pool, 40 * kMiB, stream);
  const uint64_t ordinary = f.Allocate(30 * kMiB);
  f.FreeAsync(ordinary);
  f.Write(stream, freed, 40 * kMiB);
  f.FreeAsync(freed, stream);
  REQUIRE(f.heap().EmptyPool(pool).ok());
  CHECK(f.Stats().reserved_bytes >= 34 * kMiB);
  CHECK(f.Stats().reserved_bytes < 44 * kMiB);
  f.Release(pool);
  f.FreeAsync(kept, stream);
  REQUIRE(f.heap().EmptyPool(pool).ok());
  CHECK(f.Stats().reserved_bytes == 30 * kMiB);
  f.RequireNoRaces();
  f.RequireAllIsGivenBack();
}

TEST_CASE("threads share pools with a source, and all segments go back once", "[sources]") {
  SourceFixture f(Device(1024 * kMiB));
  const uint64_t pool = f.NewPool(f.source.Options());
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      if (!f.EnterDevice()) ++failures;
      for (uint64_t i = 0; i < 60; ++i) {
        if (!f.heap().BeginRoute(pool, nullptr, nullptr).ok()) ++failures;
        HeapError error;
        const uint64_t bytes = (t + 1) * (i % 7 + 1) * 100000;
        const uint64_t at = f.heap().Allocate(bytes, kBlockAlignment, nullptr, &error);
        if (!f.heap().EndRoute(pool).ok()) ++failures;
        if (at == 0 || !f.source.Has(at, bytes)) ++failures;
        if (!f.heap().FreeAsync(at, nullptr).ok()) ++failures;
        if (i % 16 == 0 && !f.heap().EmptyPool(pool).ok()) ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 0);
  f.Release(pool);
  f.RequireAllIsGivenBack();
  f.RequireSourceIsWhole();
}

}  // namespace
}  // namespace weir::test
