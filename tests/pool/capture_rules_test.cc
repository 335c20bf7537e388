// Capture pools: what must hold while captures, routes and pools come and go.
#include <future>
#include <thread>
#include <vector>

#include "tests/pool/capture_fixture.h"
#include "tests/support/worker.h"

namespace weir {

using test::CaptureFixture;
using test::Worker;

namespace {

int IsUser(Stream stream, void* user) { return stream == user ? 1 : 0; }

// A filter that lets the test go on while it is asked.
struct Gate {
  std::promise<void> entered, open;
};
int WaitAtGate(Stream, void* user) {
  auto* gate = static_cast<Gate*>(user);
  gate->entered.set_value();
  gate->open.get_future().wait();
  return 1;
}

}  // namespace

TEST_CASE("no context marker ends a capture on a stream that was never seen", "[capture]") {
  for (const bool by_filter : {false, true}) {
    CaptureFixture f;
    const CUstream unseen = f.NewStream(), other_stream = f.NewStream();
    const uint64_t any = f.Allocate(6 * kMiB, kAnyStream);
    const uint64_t pool = f.NewPool();
    if (by_filter) {
      REQUIRE(f.heap().BeginRoute(pool, &IsUser, unseen).ok());
    } else {
      f.Begin(pool);
    }
    f.BeginCapture(unseen);
    bool ok = false;
    Worker other;
    other.Do([&] {
      HeapError error;
      ok = f.EnterDevice() && f.heap().Free(any).ok() &&
           f.heap().Allocate(20 * kMiB, 512, other_stream, &error) != 0 &&
           f.heap().EmptyCache().ok();
    });
    REQUIRE(ok);
    REQUIRE(f.device().CaptureSurvives(unseen));
    f.End(pool);
  }
}

TEST_CASE("a capture survives when the driver cannot say whether a stream is captured",
          "[capture]") {
  for (uint64_t nth = 1; nth <= 8; ++nth) {
    INFO("call " << nth);
    CaptureFixture f;
    const CUstream s = f.NewStream(), t = f.NewStream();
    const uint64_t any = f.Allocate(6 * kMiB, kAnyStream);
    f.Allocate(kMiB, t);
    f.Allocate(2000, s);
    f.BeginCapture(s);  // without a route: the driver is asked
    sim::Fault fault;
    fault.entry = "cuStreamIsCapturing";
    fault.nth = nth;
    fault.result = CUDA_ERROR_UNKNOWN;
    sim::InjectFault(fault);
    f.Free(any);
    HeapError error;
    f.heap().Allocate(20 * kMiB, 512, t, &error);
    static_cast<void>(f.heap().EmptyCache().ok());
    sim::ClearFaults();
    REQUIRE(f.device().CaptureSurvives(s));
  }
}

TEST_CASE("a filter is not asked about requests for no stream", "[capture]") {
  CaptureFixture f;
  const uint64_t pool = f.NewPool();
  std::vector<Stream> asked;
  const auto note = [](Stream stream, void* user) {
    static_cast<std::vector<Stream>*>(user)->push_back(stream);
    return 0;
  };
  REQUIRE(f.heap().BeginRoute(pool, note, &asked).ok());
  f.Free(f.Allocate(2000, kAnyStream));
  f.FreeAsync(f.Allocate(2000));
  REQUIRE(asked == std::vector<Stream>{nullptr});
  f.End(pool);
}

TEST_CASE("a request that meets a pool's end is served from ordinary memory", "[capture]") {
  for (const bool seen : {false, true}) {
    CaptureFixture f;
    const CUstream s = f.NewStream();
    const uint64_t pool = f.NewPool();
    if (seen) {
      f.Begin(pool);
      f.FreeAsync(f.Allocate(6 * kMiB, s), s);
      f.End(pool);
    }
    Gate gate;
    REQUIRE(f.heap().BeginRoute(pool, &WaitAtGate, &gate).ok());
    uint64_t at = 0;
    HeapError error;
    std::thread waiting([&] { at = f.heap().Allocate(6 * kMiB, kBlockAlignment, s, &error); });
    gate.entered.get_future().wait();
    f.End(pool);
    f.Release(pool);
    gate.open.set_value();
    waiting.join();
    INFO(error.text);
    REQUIRE(at != 0);
    REQUIRE(f.PoolOf(at) == 0);
    f.RequireValid();
  }
}

TEST_CASE("a route of a thread that has ended does not keep its pool for ever", "[capture]") {
  CaptureFixture f;
  const uint64_t pool = f.NewPool();
  bool ok = false;
  std::thread([&] { ok = f.heap().BeginRoute(pool, nullptr, nullptr).ok(); }).join();
  REQUIRE(ok);
  REQUIRE(f.heap().ReleasePool(pool).ok());
  REQUIRE(f.PoolOf(f.Allocate(2000)) == 0);
}

TEST_CASE("what a pool keeps is not said to be free for others", "[capture]") {
  sim::Config config;
  config.memory_bytes = 256 * kMiB;
  CaptureFixture f(config);
  const CUstream s = f.NewStream();
  const uint64_t pool = f.NewPool();
  f.Begin(pool);
  f.FreeAsync(f.Allocate(100 * kMiB, s), s);
  f.End(pool);
  uint64_t free_bytes = 0, total_bytes = 0;
  REQUIRE(f.heap().MemGetInfo(&free_bytes, &total_bytes).ok());
  REQUIRE(free_bytes <= 156 * kMiB);
  f.Release(pool);
  REQUIRE(f.heap().MemGetInfo(&free_bytes, &total_bytes).ok());
  REQUIRE(free_bytes == 256 * kMiB);
}

TEST_CASE("nothing is left of pools and streams that are gone and whose memory is", "[capture]") {
  CaptureFixture f;
  const CUstream s = f.NewStream();
  f.FreeAsync(f.Allocate(2000, s), s);
  const uint64_t before = f.Stats().streams;
  for (int i = 0; i < 50; ++i) {
    const uint64_t pool = f.NewPool();
    const CUstream t = f.NewStream();
    f.Begin(pool);
    f.FreeAsync(f.Allocate(3 * kMiB, s), s);
    f.FreeAsync(f.Allocate(2000, t), t);
    f.End(pool);
    f.FreeAsync(f.Allocate(5 * kMiB, t), t);
    REQUIRE(f.heap().StreamDestroyed(t).ok());
    f.device().DestroyStream(t);
    f.Release(pool);
    REQUIRE(f.heap().EmptyCache().ok());
  }
  REQUIRE(f.Stats().streams <= before + 4);
  f.RequireValid();
}

TEST_CASE("a route does not hide memory whose work was complete before it", "[capture]") {
  const CUstream per_thread = reinterpret_cast<CUstream>(uintptr_t{2});
  sim::Config config;
  config.memory_bytes = 64 * kMiB;
  CaptureFixture f(config);
  const CUstream s = f.NewStream();
  f.FreeAsync(f.Allocate(60 * kMiB, per_thread), per_thread);
  const uint64_t pool = f.NewPool();
  f.Begin(pool);
  HeapError error;
  REQUIRE(f.heap().Allocate(50 * kMiB, 512, s, &error) != 0);
  f.End(pool);
}

TEST_CASE("a route of another thread does not keep the host from waiting for a stream",
          "[capture]") {
  sim::Config config;
  config.memory_bytes = 64 * kMiB;
  CaptureFixture f(config);
  const CUstream s = f.NewStream(), r = f.NewStream(), t = f.NewStream();
  const uint64_t a = f.Allocate(30 * kMiB, s), b = f.Allocate(30 * kMiB, r);
  sim::HoldStream(0, s);
  sim::HoldStream(0, r);
  f.Write(s, a, 30 * kMiB);
  f.Write(r, b, 30 * kMiB);
  f.FreeAsync(a, s);
  f.FreeAsync(b, r);
  sim::OnNextCall("cuEventSynchronize", [&] {
    sim::ReleaseStream(0, s);
    sim::ReleaseStream(0, r);
  });
  const uint64_t pool = f.NewPool();
  Worker other;
  bool ok = false;
  other.Do([&] { ok = f.heap().BeginRoute(pool, nullptr, nullptr).ok(); });
  REQUIRE(ok);
  const uint64_t at = f.Allocate(50 * kMiB, t);
  f.Write(t, at, 50 * kMiB);
  f.RequireNoRaces();
  f.RequireValid();
}

}  // namespace weir
