// What weir/weir.h promises about capture pools, in C and through weir/capture_pool.h.
#include <thread>
#include <type_traits>
#include <utility>

#include "tests/capi/simulated_weir.h"
#include "weir/capture_pool.h"

namespace weir::test {
namespace {

int IsStream(weir_stream_t stream, void* user) { return stream == user ? 1 : 0; }

weir_pool_t NewPool(int device = 0) {
  weir_pool_t pool = 0;
  REQUIRE(weir_pool_create(device, &pool) == WEIR_OK);
  REQUIRE(pool != 0);
  return pool;
}

// Whether memory freed now comes from a pool: those keep what they have.
bool IsKept(size_t bytes, weir_stream_t stream, int device = 0) {
  void* block = weir_malloc_async_device(bytes, device, stream);
  REQUIRE(block != nullptr);
  REQUIRE(weir_free_async(block, stream) == WEIR_OK);
  REQUIRE(weir_empty_cache(device) == WEIR_OK);
  return SimulatedWeir::Stats(device).reserved_bytes >= bytes;
}

TEST_CASE("a pool keeps the memory of requests routed to it until it is released", "[pools]") {
  if (IsPassthrough()) return;
  const SimulatedWeir weir;
  const weir_stream_t stream = NewStream();
  for (size_t bytes : {size_t{2000}, size_t{200000}, 6 * kMiB}) {
    INFO(bytes);
    const weir_pool_t pool = NewPool();
    CHECK_FALSE(IsKept(bytes, stream));
    REQUIRE(weir_pool_begin(pool) == WEIR_OK);
    CHECK(IsKept(bytes, stream));
    REQUIRE(weir_pool_end(pool) == WEIR_OK);
    REQUIRE(weir_empty_cache(0) == WEIR_OK);
    CHECK(SimulatedWeir::Stats().reserved_bytes >= bytes);  // by the pool, still
    REQUIRE(weir_pool_release(pool) == WEIR_OK);
    CHECK_FALSE(IsKept(bytes, stream));
  }
}

TEST_CASE("a filter routes by stream, also the requests of other threads", "[pools]") {
  if (IsPassthrough()) return;
  const SimulatedWeir weir;
  const weir_stream_t stream = NewStream(), other = NewStream();
  const weir_pool_t pool = NewPool();
  REQUIRE(weir_pool_begin_filter(pool, &IsStream, stream) == WEIR_OK);
  CHECK_FALSE(IsKept(6 * kMiB, other));
  std::thread([&] {
    weir_set_device(0);
    weir_free_async(weir_malloc_async(6 * kMiB, stream), stream);
  }).join();
  REQUIRE(weir_empty_cache(0) == WEIR_OK);
  CHECK(SimulatedWeir::Stats().reserved_bytes >= 6 * kMiB);
  REQUIRE(weir_pool_end(pool) == WEIR_OK);
  REQUIRE(weir_pool_release(pool) == WEIR_OK);
}

TEST_CASE("a route is for the pool's device only", "[pools]") {
  if (IsPassthrough()) return;
  const SimulatedWeir weir;
  const weir_stream_t on_first = NewStream(0), on_second = NewStream(1);
  const weir_pool_t pool = NewPool(1);
  REQUIRE(weir_pool_begin(pool) == WEIR_OK);
  CHECK_FALSE(IsKept(6 * kMiB, on_first, 0));
  CHECK(IsKept(6 * kMiB, on_second, 1));
  REQUIRE(weir_pool_end(pool) == WEIR_OK);
  REQUIRE(weir_pool_release(pool) == WEIR_OK);
}

TEST_CASE("what is no pool, and what cannot be done to one, is an error with a text", "[pools]") {
  if (IsPassthrough()) return;
  const SimulatedWeir weir;
  const weir_pool_t pool = NewPool(), gone = NewPool();
  REQUIRE(weir_pool_release(gone) == WEIR_OK);
  const weir_pool_t no_device = weir_pool_t{7} << 32 | 1,
                    other_device = pool + (weir_pool_t{1} << 32);
  for (const weir_pool_t bad :
       {weir_pool_t{0}, weir_pool_t{1}, gone, no_device, other_device, UINT64_MAX}) {
    INFO(bad);
    for (const auto function :
         {&weir_pool_retain, &weir_pool_release, &weir_pool_begin, &weir_pool_end}) {
      CHECK(function(bad) == WEIR_ERROR_INVALID_ARGUMENT);
      CHECK(ErrorSays("no capture pool"));
    }
    CHECK(weir_pool_begin_filter(bad, &IsStream, nullptr) == WEIR_ERROR_INVALID_ARGUMENT);
  }
  CHECK(weir_pool_begin_filter(pool, nullptr, nullptr) == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(ErrorSays("filter is NULL"));
  CHECK(weir_pool_end(pool) == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(ErrorSays("no route"));
  REQUIRE(weir_pool_begin(pool) == WEIR_OK);
  REQUIRE(weir_pool_release(pool) == WEIR_OK);  // ends the route
  CHECK(weir_pool_end(pool) == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(weir_pool_release(pool) == WEIR_ERROR_INVALID_ARGUMENT);

  CHECK(weir_pool_create(0, nullptr) == WEIR_ERROR_INVALID_ARGUMENT);
  weir_pool_t made = 77;
  CHECK(weir_pool_create(2, &made) == WEIR_ERROR_NO_DEVICE);
  CHECK(weir_pool_create(-1, &made) == WEIR_ERROR_NO_DEVICE);
  CHECK(made == 77);
}

TEST_CASE("passthrough has no capture pools and says so", "[pools]") {
  if (!IsPassthrough()) return;
  const SimulatedWeir weir;
  weir_pool_t pool = 77;
  CHECK(weir_pool_create(0, &pool) == WEIR_ERROR_CONFIGURATION);
  CHECK(ErrorSays("passthrough"));
  CHECK(pool == 77);
  CHECK_THROWS_AS(CapturePool(), Error);
}

// ---- weir/capture_pool.h ------------------------------------------------------------------------

TEST_CASE("a CapturePool ends with its last copy", "[pools][cpp_api]") {
  if (IsPassthrough()) return;
  const SimulatedWeir weir;
  weir_pool_t id = 0;
  {
    CapturePool pool(1);
    id = pool.get();
    CapturePool copy = pool;
    CHECK(copy == pool);
    CHECK(CapturePool(1) != pool);
    pool = CapturePool(0);
    CHECK(copy.get() == id);
    CapturePool moved = std::move(copy);
    CHECK(moved.get() == id);
    CHECK(weir_pool_retain(id) == WEIR_OK);
    CHECK(weir_pool_release(id) == WEIR_OK);
  }
  CHECK(weir_pool_retain(id) == WEIR_ERROR_INVALID_ARGUMENT);
  static_assert(std::is_nothrow_move_constructible<CapturePool>::value);
  static_assert(!std::is_copy_constructible<CapturePool::Scope>::value);
}

TEST_CASE("a Scope routes for its lifetime and keeps its pool", "[pools][cpp_api]") {
  if (IsPassthrough()) return;
  const SimulatedWeir weir;
  const weir_stream_t stream = NewStream();
  {
    const CapturePool::Scope outer{CapturePool()};
    CHECK(IsKept(6 * kMiB, stream));
    {
      const CapturePool inner;
      const CapturePool::Scope scope(inner, &IsStream, stream);
      CHECK(IsKept(60 * kMiB, stream));
    }
    CHECK(SimulatedWeir::Stats().reserved_bytes >= 6 * kMiB);
  }
  // That the inner pool's memory is complete is proved when no capture can be under way any more.
  REQUIRE(weir_empty_cache(0) == WEIR_OK);
  CHECK(SimulatedWeir::Stats().reserved_bytes < 60 * kMiB);
  CHECK_FALSE(IsKept(6 * kMiB, stream));
}

TEST_CASE("what a CapturePool cannot do is an Error", "[pools][cpp_api]") {
  if (IsPassthrough()) return;
  const SimulatedWeir weir;
  CHECK_THROWS_AS(CapturePool(2), Error);
  CapturePool pool;
  CHECK_THROWS_AS(CapturePool::Scope(pool, nullptr, nullptr), Error);
  CapturePool other = std::move(pool);
  CHECK_THROWS_AS(CapturePool::Scope(pool), Error);
  CHECK(weir_last_status() == WEIR_ERROR_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace weir::test
