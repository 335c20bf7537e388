// Failures of memory that moves, is given back, or is used by captures and queued work, that users
// of other allocators reported, each as a rule that holds here. Placement and limits are in files
// of their own beside this; more stand beside what they are about, all with [reports].
#include "tests/pool/cache_helpers.h"
#include "tests/pool/capture_fixture.h"
#include "tests/pool/preset.h"

namespace weir {

using test::CaptureFixture;
using test::Device;
using test::FailCall;
using test::HeapFixture;
using test::OptionsFrom;

TEST_CASE("a request routed to a pool gets what ordinary memory has idle (pytorch 159674)",
          "[reports]") {
  HeapFixture f(Device(100 * kMiB));
  const CUstream side = f.NewStream();
  const uint64_t a = f.Allocate(80 * kMiB, side);
  f.Write(side, a, 80 * kMiB);
  f.FreeAsync(a, side);
  REQUIRE(f.heap().CreatePool(1).ok());
  REQUIRE(f.heap().BeginRoute(1, nullptr, nullptr).ok());
  const uint64_t b = f.Allocate(90 * kMiB);
  f.Write(nullptr, b, 90 * kMiB);
  REQUIRE(f.heap().EndRoute(1).ok());
  f.FreeAsync(b);
  REQUIRE(f.heap().ReleasePool(1).ok());
  f.RequireNoRaces();
  f.RequireValid();
}

TEST_CASE("memory that queued work uses is not given back (tensorflow-directml 341)", "[reports]") {
  HeapOptions options;
  options.gc_threshold = 0.1;
  options.release_threshold = 0;
  HeapFixture f(Device(512 * kMiB), options);
  const CUstream s = f.NewStream();
  for (int i = 0; i < 20; ++i) {
    sim::HoldStream(0, s);
    const uint64_t at = f.Allocate((10 + static_cast<uint64_t>(i)) * kMiB, s);
    f.Write(s, at, 10 * kMiB);
    f.FreeAsync(at, s);
    f.Allocate(kMiB, f.NewStream());  // a miss, at whose end memory is given back
    REQUIRE(f.heap().Trim(UINT64_MAX).ok());
    sim::ReleaseStream(0, s);
    f.RequireNoRaces();
  }
  f.RequireValid();
}

TEST_CASE("cheaper rungs come first: complete, idle, borrowed, then waiting (Paddle 79427, 79514)",
          "[reports]") {
  HeapFixture f(Device(64 * kMiB));
  const CUstream held = f.NewStream(), done = f.NewStream();
  // Idle and complete: moved. Idle and not complete: only when nothing else is left.
  const uint64_t complete = f.Allocate(20 * kMiB, done);
  const uint64_t pending = f.Allocate(20 * kMiB, held);
  f.Write(done, complete, 512);
  f.Write(held, pending, 512);
  f.FreeAsync(complete, done);
  sim::RunUntilIdle();
  f.Write(held, pending, 512);
  sim::HoldStream(0, held);
  f.FreeAsync(pending, held);
  f.Allocate(40 * kMiB);  // 24 MiB of the device, 16 MiB moved
  REQUIRE(f.Stats().waits == 0);
  REQUIRE(f.Stats().served_waited == 0);
  sim::ReleaseStream(0, held);
  f.Allocate(20 * kMiB);
  f.RequireNoRaces();
}

TEST_CASE("granules are merged when waiting was not enough, and not before (Paddle 79514)",
          "[reports]") {
  HeapFixture f(Device(64 * kMiB), OptionsFrom("mode:tight"));
  const CUstream s = f.NewStream(), side = f.NewStream();
  std::vector<uint64_t> halves;
  for (int i = 0; i < 40; ++i) halves.push_back(f.Allocate(kMiB, s));
  const uint64_t pending = f.Allocate(20 * kMiB, s);
  f.Write(side, pending, 20 * kMiB);
  REQUIRE(f.heap().RecordUse(pending, side).ok());
  for (uint64_t at : halves) {
    // One half of each granule is left, of every second one the first.
    if ((at / kMiB) % 4 == 1 || (at / kMiB) % 4 == 2) f.FreeAsync(at, s);
  }
  f.FreeAsync(pending, s);
  f.Write(s, f.Allocate(22 * kMiB, s), 22 * kMiB);  // 4 MiB of it are left on the device
  REQUIRE(f.Stats().served_waited == 1);
  REQUIRE(f.Stats().merged_granules == 0);
  f.Write(s, f.Allocate(12 * kMiB, s), 12 * kMiB);
  REQUIRE(f.Stats().served_merged == 1);
  REQUIRE(f.Stats().merged_granules >= 5);
  f.RequireNoRaces();
  f.RequireValid();
}

TEST_CASE("memory that moves is neither made anew nor given back (pytorch 166116)", "[reports]") {
  HeapOptions options;
  options.ladder.borrow = false;  // it would spare the moves
  HeapFixture f(Device(256 * kMiB), options);
  const CUstream streams[] = {f.NewStream(), f.NewStream()};
  uint64_t warm = 0;
  for (int i = 0; i < 20; ++i) {
    if (i == 4) {
      sim::ResetCallCounts();
      warm = f.Stats().remapped_bytes;
    }
    const CUstream s = streams[i % 2];
    const uint64_t at = f.Allocate(200 * kMiB, s);
    f.Write(s, at, 200 * kMiB);
    f.FreeAsync(at, s);
  }
  REQUIRE(f.Stats().remapped_bytes >= warm + 16 * 144 * kMiB);
  REQUIRE(sim::CallCount("cuMemCreate") == 0);
  REQUIRE(sim::CallCount("cuMemRelease") == 0);
  f.RequireNoRaces();
}

TEST_CASE("a block is found from any thread and stream, wherever memory has moved (rmm 1393)",
          "[reports]") {
  HeapFixture f(Device(128 * kMiB));
  const CUstream s = f.NewStream();
  std::vector<std::pair<uint64_t, uint64_t>> blocks;
  const auto in_thread = [&f](auto&& work) {
    bool entered = false;
    test::Worker worker;
    worker.Do([&] { entered = f.EnterDevice(); });
    REQUIRE(entered);
    work(worker);
  };
  for (const uint64_t bytes : {uint64_t{3000}, 100 * kKiB, 3 * kMiB, 20 * kMiB}) {
    in_thread([&](test::Worker& worker) {  // its default stream, which ends with it
      f.FreeAsync(f.Allocate(90 * kMiB, s), s);
      blocks.emplace_back(test::AllocateIn(worker, f.heap(), bytes, CU_STREAM_PER_THREAD), bytes);
    });
    REQUIRE(f.heap().EmptyCache().ok());
  }
  f.FreeAsync(f.Allocate(100 * kMiB, s), s);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto [at, bytes] = blocks[i];
    REQUIRE(f.heap().UsableSize(at) >= bytes);
    in_thread([&, at = at](test::Worker& worker) {
      const Stream user = i % 2 == 0 ? Stream{s} : Stream{CU_STREAM_PER_THREAD};
      REQUIRE(test::FreeIn(worker, f.heap(), at, user) == WEIR_OK);
      REQUIRE(test::FreeIn(worker, f.heap(), at, user) == WEIR_ERROR_DOUBLE_FREE);
    });
  }
  REQUIRE(f.Stats().allocations == 0);
  f.RequireAllIsGivenBack();
}

TEST_CASE("a mapping of which a part fails is undone, and the next one works (pytorch 188008)",
          "[reports]") {
  const std::string entry = GENERATE("cuMemMap", "cuMemSetAccess");
  const bool tight = GENERATE(false, true);
  // Round 0 of `nth` counts the calls of the round in which one is to fail then: in mode:tight the
  // first that stitches.
  int failing_round = 3;
  uint64_t calls = 0;
  for (uint64_t nth = 0; nth <= calls; ++nth) {
    INFO(entry << " call " << nth << " of " << calls << " fails, tight: " << tight);
    HeapFixture f(Device(96 * kMiB), OptionsFrom(tight ? "mode:tight" : "mode:default"));
    for (int round = 0; round < 12; ++round) {
      std::vector<uint64_t> blocks;
      for (int i = 0; i < 44; ++i) blocks.push_back(f.Allocate(2 * kMiB));
      for (size_t i = 0; i < 44; i += 2) f.FreeAsync(blocks[i]);
      const uint64_t stitched = f.Stats().stitched_bytes;
      sim::ResetCallCounts();
      if (nth > 0 && round == failing_round) FailCall(entry, nth, CUDA_ERROR_OUT_OF_MEMORY);
      HeapError error;
      uint64_t large = f.heap().Allocate(52 * kMiB, kBlockAlignment, nullptr, &error);
      const bool first = stitched == 0 && f.Stats().stitched_bytes > 0;
      if (nth == 0 && (tight ? first : round == failing_round)) {
        failing_round = round;
        calls = sim::CallCount(entry);
      }
      sim::ClearFaults();
      f.RequireValid();
      REQUIRE(f.Stats().reserved_bytes == sim::UsedBytes(0));
      if (large == 0) large = f.Allocate(52 * kMiB);
      f.Write(nullptr, large, 52 * kMiB);
      f.FreeAsync(large);
      for (size_t i = 1; i < 44; i += 2) f.FreeAsync(blocks[i]);
    }
    REQUIRE((f.Stats().stitched_bytes > 0) == tight);
    f.RequireNoRaces();
    f.RequireAllIsGivenBack();
  }
  REQUIRE(calls > 0);
}

TEST_CASE("captures that use memory on forked streams need no more each time (pytorch 155398)",
          "[reports]") {
  CaptureFixture f;
  const CUstream s = f.NewStream(), fork = f.NewStream();
  const uint64_t pool = f.NewPool();
  uint64_t after_two = 0;
  for (int i = 0; i < 20; ++i) {
    f.Begin(pool);
    f.BeginCapture(s);
    for (const uint64_t bytes : {uint64_t{2000}, 100 * kKiB, 4 * kMiB}) {
      f.FreeReadOnFork(bytes, s, fork);
    }
    f.OrderAfter(fork, s);
    const CUgraphExec exec = f.EndCapture(s);
    f.End(pool);
    for (int j = 0; j < 3; ++j) f.LaunchGraph(exec, s);
    REQUIRE(f.device().entries().StreamSynchronize(s) == CUDA_SUCCESS);
    if (i == 1) after_two = f.Stats().reserved_bytes;
  }
  REQUIRE(f.Stats().reserved_bytes == after_two);
  f.RequireNoRaces();
  f.RequireValid();
}

}  // namespace weir
