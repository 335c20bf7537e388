// Capture pools: which requests they serve, and what may be done to them.
#include <atomic>
#include <future>
#include <thread>

#include "tests/pool/capture_fixture.h"
#include "tests/support/worker.h"

namespace weir {
namespace {

using test::CaptureFixture;
using test::Worker;

// On both sides of every border between the ways a block is served.
constexpr uint64_t kSizes[] = {1, 2000, 32 * kKiB, 100000, 256 * kKiB, kMiB, 6 * kMiB};

// From any thread: 0 if the heap has none.
uint64_t AllocateIn(Worker& worker, DeviceHeap& heap, uint64_t bytes, Stream stream) {
  uint64_t at = 0;
  worker.Do([&] {
    HeapError error;
    at = heap.Allocate(bytes, kBlockAlignment, stream, &error);
  });
  return at;
}

int IsStream(Stream stream, void* wanted) { return stream == wanted ? 1 : 0; }

bool IsRefusal(const HeapError& error) {
  return error.code == WEIR_ERROR_INVALID_ARGUMENT && !error.text.empty();
}

TEST_CASE("requests of the routed thread come from the pool, those of other threads do not",
          "[capture]") {
  CaptureFixture f;
  const CUstream s = f.NewStream();
  Worker other;
  // Hits too: both threads have free blocks in their caches.
  for (uint64_t bytes : kSizes) {
    f.FreeAsync(f.Allocate(bytes, s), s);
    const uint64_t at = AllocateIn(other, f.heap(), bytes, s);
    REQUIRE(f.heap().FreeAsync(at, s).ok());
  }
  const uint64_t pool = f.NewPool();
  f.Begin(pool);
  for (const Stream stream : {static_cast<Stream>(s), Stream{nullptr}, kAnyStream}) {
    for (uint64_t bytes : kSizes) {
      INFO(bytes);
      const uint64_t mine = f.Allocate(bytes, stream);
      REQUIRE(f.PoolOf(mine) == pool);
      const uint64_t theirs = AllocateIn(other, f.heap(), bytes, stream);
      REQUIRE(f.PoolOf(theirs) == 0);
      f.FreeAsync(mine, stream);
      f.FreeAsync(theirs, stream);
      // What was freed outside of the pool does not get into it.
      REQUIRE(f.PoolOf(f.Allocate(bytes, stream)) == pool);
    }
  }
  f.End(pool);
  for (uint64_t bytes : kSizes) REQUIRE(f.PoolOf(f.Allocate(bytes, s)) == 0);
  f.RequireValid();
}

TEST_CASE("blocks freed in a pool serve the pool again", "[capture]") {
  CaptureFixture f;
  const CUstream s = f.NewStream();
  const uint64_t pool = f.NewPool();
  for (uint64_t bytes : kSizes) {
    f.Begin(pool);
    const uint64_t a = f.Allocate(bytes, s);
    f.FreeAsync(a, s);
    f.End(pool);
    REQUIRE(f.Allocate(bytes, s) != a);
    f.Begin(pool);
    REQUIRE(f.Allocate(bytes, s) == a);  // freed in the same stream's order
    f.End(pool);
  }
  f.RequireValid();
}

TEST_CASE("a filter routes any thread's requests by their stream", "[capture]") {
  CaptureFixture f;
  const CUstream s = f.NewStream(), t = f.NewStream();
  Worker other;
  for (uint64_t bytes : kSizes) {
    f.FreeAsync(f.Allocate(bytes, s), s);
    REQUIRE(f.heap().FreeAsync(AllocateIn(other, f.heap(), bytes, s), s).ok());
  }
  const uint64_t pool = f.NewPool();
  REQUIRE(f.heap().BeginRoute(pool, &IsStream, s).ok());
  for (uint64_t bytes : kSizes) {
    INFO(bytes);
    REQUIRE(f.PoolOf(f.Allocate(bytes, s)) == pool);
    REQUIRE(f.PoolOf(AllocateIn(other, f.heap(), bytes, s)) == pool);
    REQUIRE(f.PoolOf(f.Allocate(bytes, t)) == 0);
    REQUIRE(f.PoolOf(AllocateIn(other, f.heap(), bytes, t)) == 0);
  }
  bool ended = false;
  other.Do([&] { ended = f.heap().EndRoute(pool).ok(); });  // a filter's route is no thread's own
  REQUIRE(ended);
  for (uint64_t bytes : kSizes) REQUIRE(f.PoolOf(AllocateIn(other, f.heap(), bytes, s)) == 0);
}

TEST_CASE("a filter may ask the driver about the stream", "[capture]") {
  CaptureFixture f;
  const CUstream s = f.NewStream(), t = f.NewStream();
  const uint64_t pool = f.NewPool();
  const auto is_capturing = [](Stream stream, void* user) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const auto* device = static_cast<const test::SimDevice*>(user);
    const CUresult result = device->entries().StreamIsCapturing(stream, &status);
    return result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? 1 : 0;
  };
  void* user = const_cast<test::SimDevice*>(&f.device());
  REQUIRE(f.heap().BeginRoute(pool, is_capturing, user).ok());
  REQUIRE(f.PoolOf(f.Allocate(2000, s)) == 0);
  f.BeginCapture(s);
  REQUIRE(f.PoolOf(f.Allocate(2000, s)) == pool);
  REQUIRE(f.PoolOf(f.Allocate(6 * kMiB, s)) == pool);
  REQUIRE(f.PoolOf(f.Allocate(2000, t)) == 0);
  REQUIRE(f.device().CaptureSurvives(s));
  REQUIRE(f.PoolOf(f.Allocate(2000, s)) == 0);
  f.End(pool);
}

// What a filter that blocks shares with the test.
struct Gate {
  std::promise<void> entered, open;
  Stream blocks_on;
};

TEST_CASE("a filter is called without a lock: meanwhile other threads allocate, free and trim",
          "[capture]") {
  CaptureFixture f;
  const CUstream s = f.NewStream(), t = f.NewStream();
  const uint64_t pool = f.NewPool();
  f.FreeAsync(f.Allocate(2000, t), t);
  Gate gate;
  gate.blocks_on = s;
  const auto filter = [](Stream stream, void* user) {
    auto* g = static_cast<Gate*>(user);
    if (stream != g->blocks_on) return 0;
    g->entered.set_value();
    g->open.get_future().wait();
    return 1;
  };
  REQUIRE(f.heap().BeginRoute(pool, filter, &gate).ok());
  uint64_t at = 0;
  std::thread waiting([&] {
    HeapError error;
    at = f.heap().Allocate(2000, kBlockAlignment, s, &error);
  });
  gate.entered.get_future().wait();
  const uint64_t cached = f.Allocate(2000, t);       // a hit
  const uint64_t missed = f.Allocate(50 * kMiB, t);  // calls the driver
  REQUIRE(f.PoolOf(cached) == 0);
  REQUIRE(f.PoolOf(missed) == 0);
  f.FreeAsync(cached, t);
  f.Free(missed);
  REQUIRE(f.heap().EmptyCache().ok());
  f.RequireValid();
  gate.open.set_value();
  waiting.join();
  REQUIRE(at != 0);
  REQUIRE(f.PoolOf(at) == pool);
}

TEST_CASE("the newest route wins, and its end brings back the one before", "[capture]") {
  CaptureFixture f;
  const CUstream s = f.NewStream();
  const uint64_t first = f.NewPool(), second = f.NewPool();
  const auto routed_to = [&] { return f.PoolOf(f.Allocate(2000, s)); };
  f.Begin(first);
  f.Begin(second);
  REQUIRE(routed_to() == second);
  f.Begin(first);
  REQUIRE(routed_to() == first);
  f.End(first);
  REQUIRE(routed_to() == second);
  REQUIRE(f.heap().BeginRoute(first, &IsStream, s).ok());
  REQUIRE(routed_to() == first);
  f.End(second);  // not the newest of all
  REQUIRE(routed_to() == first);
  f.End(first);
  REQUIRE(routed_to() == first);  // the oldest
  f.End(first);
  REQUIRE(routed_to() == 0);
  f.Release(first);
  f.Release(second);
}

TEST_CASE("what is wrong about a pool is said and changes nothing", "[capture]") {
  CaptureFixture f;
  const CUstream s = f.NewStream();
  Worker other;
  const uint64_t pool = f.NewPool(), gone = f.NewPool();
  f.Release(gone);
  for (const uint64_t unknown : {uint64_t{0}, gone, uint64_t{12345}, UINT64_MAX}) {
    REQUIRE(IsRefusal(f.heap().BeginRoute(unknown, nullptr, nullptr)));
    REQUIRE(IsRefusal(f.heap().BeginRoute(unknown, &IsStream, s)));
    REQUIRE(IsRefusal(f.heap().EndRoute(unknown)));
    REQUIRE(IsRefusal(f.heap().RetainPool(unknown)));
    REQUIRE(IsRefusal(f.heap().ReleasePool(unknown)));
  }
  REQUIRE(IsRefusal(f.heap().EndRoute(pool)));  // was not begun
  f.Begin(pool);
  bool refused = false;
  other.Do([&] { refused = IsRefusal(f.heap().EndRoute(pool)); });  // not that thread's
  REQUIRE(refused);
  const uint64_t a = f.Allocate(2000, s);
  REQUIRE(f.PoolOf(a) == pool);
  f.End(pool);
  REQUIRE(IsRefusal(f.heap().EndRoute(pool)));
  REQUIRE(f.PoolOf(f.Allocate(2000, s)) == 0);
  f.Release(pool);
  REQUIRE(IsRefusal(f.heap().ReleasePool(pool)));
  f.FreeAsync(a, s);
  f.RequireValid();
}

TEST_CASE("a pool ends with its last user", "[capture]") {
  CaptureFixture f;
  const CUstream s = f.NewStream();
  const uint64_t pool = f.NewPool();
  f.Begin(pool);
  f.FreeAsync(f.Allocate(6 * kMiB, s), s);
  REQUIRE(f.heap().RetainPool(pool).ok());
  REQUIRE(f.heap().RetainPool(pool).ok());
  f.Release(pool);
  f.Release(pool);  // one user is left
  REQUIRE(f.heap().EmptyCache().ok());
  REQUIRE(f.Stats().reserved_bytes >= 6 * kMiB);  // the pool keeps what it has
  f.Release(pool);                                // ends the route too
  REQUIRE(IsRefusal(f.heap().EndRoute(pool)));
  const uint64_t ordinary = f.Allocate(2000, s);
  REQUIRE(f.PoolOf(ordinary) == 0);
  f.FreeAsync(ordinary, s);
  REQUIRE(f.heap().EmptyCache().ok());
  REQUIRE(f.Stats().reserved_bytes == 0);
  REQUIRE(IsRefusal(f.heap().RetainPool(pool)));
}

TEST_CASE("a stream may be destroyed while its pool lives, and the other way round", "[capture]") {
  CaptureFixture f;
  const CUstream s = f.NewStream(), t = f.NewStream();
  const uint64_t pool = f.NewPool();
  f.Begin(pool);
  const uint64_t small = f.Allocate(2000, s), large = f.Allocate(6 * kMiB, s);
  const uint64_t freed = f.Allocate(8 * kMiB, s);
  f.FreeAsync(freed, s);
  REQUIRE(f.heap().StreamDestroyed(s).ok());
  f.device().DestroyStream(s);
  const CUstream again = f.NewStream();  // perhaps with the same handle value
  REQUIRE(f.Allocate(8 * kMiB, again) != freed);
  REQUIRE(f.PoolOf(f.Allocate(2000, again)) == pool);
  f.End(pool);
  f.RequireValid();
  REQUIRE(f.heap().EmptyCache().ok());
  f.FreeAsync(small, t);
  f.Release(pool);
  f.Free(large);
  f.RequireValid();
}

TEST_CASE("threads begin and end routes, allocate and free for each other at the same time",
          "[capture][threads]") {
  CaptureFixture f;
  constexpr size_t kThreads = 4;
  constexpr int kSteps = 400;
  const CUstream filtered = f.NewStream();
  std::vector<CUstream> streams;
  std::vector<uint64_t> pools;
  for (size_t i = 0; i < kThreads; ++i) {
    streams.push_back(f.NewStream());
    pools.push_back(f.NewPool());
  }
  const uint64_t filter_pool = f.NewPool();
  // Slots through which blocks pass from thread to thread.
  std::vector<std::atomic<uint64_t>> slots(16);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      if (!f.EnterDevice()) ++wrong;
      const auto expect = [&](bool ok) {
        if (!ok) ++wrong;
      };
      const auto allocate_some = [&](Stream stream, std::vector<uint64_t> allowed) {
        for (uint64_t bytes : kSizes) {
          HeapError error;
          const uint64_t at = f.heap().Allocate(bytes, kBlockAlignment, stream, &error);
          expect(at != 0);
          if (at == 0) continue;
          expect(std::count(allowed.begin(), allowed.end(), f.PoolOf(at)) == 1);
          const uint64_t other = slots[(bytes + t) % slots.size()].exchange(at);
          if (other != 0) expect(f.heap().FreeAsync(other, streams[t]).ok());
        }
      };
      for (int i = 0; i < kSteps; ++i) {
        allocate_some(streams[t], {0});
        allocate_some(filtered, {0, filter_pool});
        expect(f.heap().BeginRoute(pools[t], nullptr, nullptr).ok());
        allocate_some(streams[t], {pools[t]});
        if (t == 0) {
          expect(f.heap().BeginRoute(filter_pool, &IsStream, filtered).ok());
          allocate_some(filtered, {filter_pool});
          expect(f.heap().EndRoute(filter_pool).ok());
        }
        expect(f.heap().EndRoute(pools[t]).ok());
        if (i % 50 == 0) expect(f.heap().EmptyCache().ok());
        if (i % 50 == 25) {  // another pool from now on
          expect(f.heap().ReleasePool(pools[t]).ok());
          pools[t] += 1000;
          expect(f.heap().CreatePool(pools[t]).ok());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  REQUIRE(wrong == 0);
  for (const auto& slot : slots) {
    if (slot != 0) f.Free(slot);
  }
  for (const uint64_t pool : pools) f.Release(pool);
  f.Release(filter_pool);
  REQUIRE(f.heap().EmptyCache().ok());
  f.RequireValid();
  REQUIRE(sim::UsedBytes(0) == 0);
}

}  // namespace
}  // namespace weir
