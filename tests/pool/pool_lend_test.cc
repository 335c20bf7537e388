// Pools whose idle memory may serve ordinary requests before they fail (use_on_oom).
#include "tests/pool/pool_source.h"

namespace weir::test {
namespace {

struct LendFixture : CaptureFixture {
  LendFixture() : CaptureFixture(Device(256 * kMiB)) {}
  PoolSource source{device()};
  // A pool with a block of so many bytes, freed.
  uint64_t PoolWithIdle(const weir_pool_options_t& options, uint64_t bytes,
                        Stream stream = nullptr) {
    const uint64_t pool = NewPool(options);
    Begin(pool);
    const uint64_t at = Allocate(bytes, stream);
    End(pool);
    FreeAsync(at, stream);
    return pool;
  }
  uint64_t Try(uint64_t bytes, Stream stream = nullptr) {
    HeapError error;
    return heap().Allocate(bytes, kBlockAlignment, stream, &error);
  }
  bool Fits(uint64_t bytes, Stream stream = nullptr) {
    bool fits = false;
    uint64_t missing = 0;
    REQUIRE(heap().WouldFit(bytes, stream, &fits, &missing).ok());
    return fits;
  }
};

TEST_CASE("a pool that may lend serves ordinary requests that would fail, and only those",
          "[lend]") {
  LendFixture f;
  const int kind = GENERATE(0, 1, 2);  // ordinary memory, a source, a source without splitting
  INFO(kind);
  weir_pool_options_t options = kind == 0 ? weir_pool_options_t{} : f.source.Options(kind == 2);
  const uint64_t other = f.PoolWithIdle(options, 60 * kMiB);
  options.use_on_oom = 1;
  const uint64_t pool = f.PoolWithIdle(options, 100 * kMiB);
  const CUstream stream = f.NewStream();
  const uint64_t first = f.Allocate(80 * kMiB, stream);
  CHECK(CaptureFixture::PoolOf(first) == 0);
  CHECK(f.Fits(100 * kMiB, stream));
  CHECK_FALSE(f.Fits(120 * kMiB, stream));
  const uint64_t lent = f.Try(100 * kMiB, stream);
  REQUIRE(lent != 0);
  f.RequireValid();
  CHECK(f.Try(60 * kMiB, stream) == 0);  // not from the other one
  CHECK(f.Stats().reserved_bytes <= 256 * kMiB);
  // It comes back when it is freed: to the pool if it stayed there.
  f.Write(stream, lent, 100 * kMiB);
  f.FreeAsync(lent, stream);
  const uint64_t again = f.Try(100 * kMiB, stream);
  CHECK(again != 0);
  f.FreeAsync(again, stream);

  REQUIRE(f.heap().SetPoolUseOnOom(pool, false).ok());
  if (kind != 0) CHECK(f.Try(100 * kMiB, stream) == 0);
  f.FreeAsync(first, stream);
  f.Release(pool);
  f.Release(other);
  f.RequireNoRaces();
  f.RequireAllIsGivenBack();
  CHECK(f.source.segments() == 0);
  CHECK(f.source.wrong() == 0);
}

TEST_CASE("what a pool lends is complete", "[lend]") {
  LendFixture f;
  const bool with_source = GENERATE(false, true);
  weir_pool_options_t options = with_source ? f.source.Options() : weir_pool_options_t{};
  options.use_on_oom = 1;
  const CUstream stream = f.NewStream(), other = f.NewStream();
  const uint64_t pool = f.NewPool(options);
  f.Begin(pool);
  const uint64_t at = f.Allocate(200 * kMiB, stream);
  f.End(pool);
  f.Write(stream, at, 200 * kMiB);
  f.FreeAsync(at, stream);
  const uint64_t lent = f.Allocate(200 * kMiB, other);
  f.Write(other, lent, 200 * kMiB);
  f.FreeAsync(lent, other);
  f.Begin(pool);
  const uint64_t back = f.Allocate(200 * kMiB, stream);
  f.End(pool);
  f.Write(stream, back, 200 * kMiB);
  f.FreeAsync(back, stream);
  f.Release(pool);
  f.RequireNoRaces();
  f.RequireAllIsGivenBack();
}

TEST_CASE("a released pool lends nothing, and a lent block outlives it", "[lend]") {
  LendFixture f;
  const uint64_t pool = f.PoolWithIdle(f.source.Options(false, true), 200 * kMiB);
  const uint64_t lent = f.Allocate(100 * kMiB);
  CHECK(f.source.Has(lent, 100 * kMiB));
  f.Release(pool);
  CHECK(f.source.segments() == 1);
  CHECK(f.Try(90 * kMiB) == 0);
  f.RequireValid();
  f.FreeAsync(lent);
  REQUIRE(f.heap().EmptyCache().ok());
  CHECK(f.source.segments() == 0);
  f.RequireAllIsGivenBack();
}

}  // namespace
}  // namespace weir::test
