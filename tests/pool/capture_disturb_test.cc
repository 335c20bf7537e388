// Captures on the memory of pools: nothing that the heap does disturbs one, frees inside wait where
// they must, and one that was aborted leaves nothing behind.
#include <vector>

#include "tests/pool/capture_fixture.h"
#include "tests/support/worker.h"

namespace weir {
namespace {

using test::CaptureFixture;
using test::Worker;

sim::Config Device(uint64_t mib) {
  sim::Config config;
  config.memory_bytes = mib * kMiB;
  return config;
}

TEST_CASE("memory freed in a capture behind a use on a forked stream waits for the capture's end",
          "[capture][graph][reports]") {  // pytorch 175560
  for (const uint64_t bytes : {uint64_t{2000}, 100 * kKiB, 4 * kMiB}) {
    INFO(bytes);
    CaptureFixture f;
    const CUstream s = f.NewStream(), fork = f.NewStream();
    f.FreeAsync(f.Allocate(bytes, fork), fork);
    const uint64_t pool = f.NewPool();
    f.Begin(pool);
    f.BeginCapture(s);
    const uint64_t a = f.FreeReadOnFork(bytes, s, fork);
    std::vector<uint64_t> others;
    for (int i = 0; i < 40; ++i) {
      others.push_back(f.Allocate(bytes, s));
      REQUIRE(others.back() != a);
      f.Write(s, others.back(), bytes);
    }
    for (const uint64_t at : others) f.FreeAsync(at, s);
    f.OrderAfter(fork, s);
    const CUgraphExec exec = f.EndCapture(s);
    f.End(pool);
    sim::RunUntilIdle();
    // Now it is the pool's again.
    f.Begin(pool);
    bool reused = false;
    for (int i = 0; i < 200 && !reused; ++i) reused = f.Allocate(bytes, s) == a;
    REQUIRE(reused);
    f.End(pool);
    for (int i = 0; i < 3; ++i) f.LaunchGraph(exec, s);
    f.RequireNoRaces();
    f.RequireValid();
  }
}

// Everything that makes a heap call the driver, on streams that are not captured.
bool DisturbHeap(DeviceHeap& heap, CUstream stream) {
  bool ok = true;
  std::vector<uint64_t> blocks;
  for (const uint64_t bytes : {uint64_t{3000}, 200 * kKiB, 9 * kMiB, 20 * kMiB, 14 * kMiB}) {
    HeapError error;
    const uint64_t at = heap.Allocate(bytes, kBlockAlignment, stream, &error);
    if (at != 0) blocks.push_back(at);
  }
  HeapError error;
  ok &= heap.Allocate(190 * kMiB, kBlockAlignment, stream, &error) == 0;  // out of memory
  ok &= error.code == WEIR_ERROR_OUT_OF_MEMORY;
  const uint64_t any = heap.Allocate(5 * kMiB, kBlockAlignment, kAnyStream, &error);
  for (size_t i = 0; i < blocks.size(); ++i) {
    ok &= (i % 2 == 0 ? heap.FreeAsync(blocks[i], stream) : heap.Free(blocks[i])).ok();
  }
  if (any != 0) ok &= heap.Free(any).ok();
  ok &= heap.Trim(64 * kMiB).ok();
  ok &= heap.EmptyCache().ok();
  return ok;
}

TEST_CASE("a capture goes on whatever the heap does meanwhile, in this thread and in others",
          "[capture][graph]") {
  CaptureFixture f(Device(200));
  const CUstream s = f.NewStream(), fork = f.NewStream(), t = f.NewStream();
  Worker other;
  const uint64_t pool = f.NewPool();
  // Allocated before the capture, freed during it by another thread, on a stream and on all.
  const uint64_t before = f.Allocate(6 * kMiB, s), before_any = f.Allocate(6 * kMiB, kAnyStream);
  const uint64_t idle = f.Allocate(40 * kMiB, t);
  f.Write(t, idle, 40 * kMiB);
  f.FreeAsync(idle, t);
  f.Begin(pool);
  f.BeginCapture(s);
  const uint64_t a = f.FreeReadOnFork(2000, s, fork);
  bool ok = false;
  other.Do([&] {
    ok = f.EnterDevice() && f.heap().FreeAsync(before, t).ok() && f.heap().Free(before_any).ok() &&
         DisturbHeap(f.heap(), t) && f.heap().RecordUse(a, t).code != WEIR_OK;
  });
  REQUIRE(ok);
  // Mine are routed to the pool.
  REQUIRE(DisturbHeap(f.heap(), s));
  REQUIRE(DisturbHeap(f.heap(), nullptr));
  other.Do([&] { ok = DisturbHeap(f.heap(), t); });
  REQUIRE(ok);
  f.OrderAfter(fork, s);
  const CUgraphExec exec = f.EndCapture(s);  // fails if the capture was invalidated
  f.End(pool);
  f.LaunchGraph(exec, s);
  f.RequireNoRaces();
  f.RequireValid();
}

TEST_CASE("a capture on a blocking stream, which makes the legacy stream unusable, goes on",
          "[capture][graph]") {
  CaptureFixture f(Device(200));
  const CUstream s = f.device().NewStream(0, CU_STREAM_DEFAULT), t = f.NewStream();
  const uint64_t legacy = f.Allocate(30 * kMiB, nullptr);
  f.FreeAsync(f.Allocate(30 * kMiB, nullptr), t);  // waits for t
  const uint64_t pool = f.NewPool();
  f.Begin(pool);
  f.BeginCapture(s);
  f.FreeAsync(legacy, nullptr);
  REQUIRE(DisturbHeap(f.heap(), s));
  Worker other;
  bool ok = false;
  other.Do([&] { ok = f.EnterDevice() && DisturbHeap(f.heap(), t); });
  REQUIRE(ok);
  f.EndCapture(s);
  f.End(pool);
  f.RequireValid();
}

TEST_CASE("a capture that was aborted leaves nothing behind", "[capture][graph]") {
  for (const bool vmm : {true, false}) {
    sim::Config config = Device(256);
    config.vmm = vmm;
    CaptureFixture f(config);
    const CUstream s = f.NewStream(), fork = f.NewStream();
    for (int round = 0; round < 3; ++round) {
      const uint64_t pool = f.NewPool();
      f.Begin(pool);
      f.BeginCapture(s);
      const uint64_t a = f.Allocate(2000, s), b = f.Allocate(6 * kMiB, s);
      const uint64_t any = f.Allocate(kMiB, kAnyStream), c = f.Allocate(100 * kKiB, s);
      f.OrderAfter(s, fork);
      REQUIRE(f.heap().RecordUse(a, fork).ok());
      f.FreeAsync(a, s);
      f.FreeAsync(c, fork);
      // Forbidden, so the capture is invalid from here on.
      REQUIRE(f.device().entries().StreamSynchronize(s) != CUDA_SUCCESS);
      f.Free(any);
      f.FreeAsync(f.Allocate(3 * kMiB, s), s);
      REQUIRE_FALSE(f.device().CaptureSurvives(s));
      f.End(pool);
      f.FreeAsync(b, s);
      f.Release(pool);
      REQUIRE(f.heap().EmptyCache().ok());
      f.RequireValid();
      REQUIRE(f.Stats().active_bytes == 0);
      REQUIRE(sim::UsedBytes(0) == 0);
    }
  }
}

TEST_CASE("a pool does not borrow between other streams' blocks: it could not keep the memory",
          "[capture]") {
  CaptureFixture f(Device(64));
  const CUstream s = f.NewStream(), t = f.NewStream();
  std::vector<uint64_t> blocks;
  HeapError error;
  while (const uint64_t at = f.heap().Allocate(100 * kKiB, kBlockAlignment, t, &error)) {
    blocks.push_back(at);
  }
  for (size_t i = 0; i < blocks.size(); i += 2) f.FreeAsync(blocks[i], t);
  const uint64_t pool = f.NewPool();
  f.Begin(pool);
  f.BeginCapture(s);
  REQUIRE(f.heap().Allocate(100 * kKiB, kBlockAlignment, s, &error) == 0);
  REQUIRE(error.code == WEIR_ERROR_OUT_OF_MEMORY);
  REQUIRE(f.device().CaptureSurvives(s));
  f.End(pool);
  f.Allocate(100 * kKiB, s);  // which ordinary memory may do
  f.RequireValid();
}

}  // namespace
}  // namespace weir
