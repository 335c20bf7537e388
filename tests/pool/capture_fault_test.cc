// Every driver call is made to fail at every position of a capture pool's life.
#include <string>
#include <vector>

#include "tests/pool/capture_fixture.h"
#include "tests/pool/fault_sweep.h"
#include "tests/pool/preset.h"

namespace weir {
namespace {

using test::CaptureFixture;

constexpr uint64_t kInputBytes = 3000, kOutputBytes = 700000;

sim::Config TightDevice(bool vmm) {
  sim::Config config;
  config.memory_bytes = 40 * kMiB;
  config.vmm = vmm;
  return config;
}

// A pool from its making to its release: misses that grow and take idle memory, a capture with
// frees and uses inside, replays beside ordinary work under pressure. Allocations may fail while a
// fault is armed. Returns how many did.
int RunPoolsLife(CaptureFixture& f) {
  int failures = 0;
  const CUstream s = f.NewStream(), fork = f.NewStream(), t = f.NewStream();
  const auto allocate = [&](uint64_t bytes, Stream stream) {
    HeapError error;
    const uint64_t at = f.heap().Allocate(bytes, kBlockAlignment, stream, &error);
    if (at == 0) {
      REQUIRE_FALSE(error.text.empty());
      ++failures;
    }
    return at;
  };
  // A free fails only where the heap could not learn what stream it is for.
  const auto free = [&](uint64_t at, Stream stream) {
    if (at != 0 && !f.heap().FreeAsync(at, stream).ok()) f.Free(at);
  };
  const auto disturb = [&] {
    std::vector<uint64_t> blocks;
    for (const uint64_t bytes : {uint64_t{2000}, 3 * kMiB, 8 * kMiB, 5 * kMiB}) {
      blocks.push_back(allocate(bytes, t));
      if (blocks.back() != 0) f.Write(t, blocks.back(), bytes);
    }
    const uint64_t any = allocate(3 * kMiB, kAnyStream);
    for (const uint64_t at : blocks) free(at, t);
    if (any != 0) f.Free(any);
    f.heap().EmptyCache().ok();
  };

  const uint64_t input = allocate(kInputBytes, s);
  free(allocate(16 * kMiB, t), t);
  const uint64_t pool = f.NewPool();
  f.Begin(pool);
  const uint64_t warm = allocate(2000, s);  // so that the heap knows the stream
  f.BeginCapture(s);
  uint64_t from = input, from_bytes = kInputBytes;
  uint8_t steps = 0;
  for (const uint64_t bytes :
       {uint64_t{2000}, 3 * kMiB, 300 * kKiB, 3 * kMiB, 300 * kKiB, kOutputBytes}) {
    const uint64_t to = allocate(bytes, s);
    if (to == 0 || from == 0) {
      free(to, s);
      continue;
    }
    f.Next(s, from, from_bytes, to, bytes);
    if (steps == 1) {
      f.OrderAfter(s, fork);
      f.Read(fork, from, from_bytes);
      REQUIRE(f.heap().RecordUse(from, fork).ok());
      f.OrderAfter(fork, s);
    }
    if (from != input) free(from, s);
    from = to;
    from_bytes = bytes;
    ++steps;
  }
  const CUgraphExec exec = f.EndCapture(s);  // fails if the capture was invalidated
  f.End(pool);
  f.RequireValid();
  for (uint8_t i = 0; i < 2 && from != 0 && input != 0; ++i) {
    disturb();
    f.Fill(s, input, kInputBytes, i);
    f.LaunchGraph(exec, s);
    const auto result = static_cast<uint8_t>(i + steps);
    f.CheckNow(s, from, from_bytes, result);
  }
  if (from != input) free(from, s);
  free(input, s);
  free(warm, s);
  f.RequireValid();
  f.Release(pool);
  disturb();
  f.RequireValid();
  return failures;
}

}  // namespace

TEST_CASE(
    "whichever driver call fails in a pool's life, the graph's memory is whole and none is lost",
    "[capture][fault]") {
  // The program is too short for stitching (alias_fault_test.cc), whose tables take their time.
  const auto [vmm, conf] = GENERATE(table<bool, const char*>({{true, "mode:default"},
                                                              {true, "mode:tight,stitch:off"},
                                                              {true, "mode:serving"},
                                                              {false, "mode:default"}}));
  const HeapOptions options = test::OptionsFrom(conf);
  const CUresult code = GENERATE(CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN);
  INFO(conf);
  {
    CaptureFixture f(TightDevice(vmm), options);
    const int failures = RunPoolsLife(f);
    if (vmm) REQUIRE(failures == 0);
  }
  const std::vector<std::string> allocator_entries{
      "cuMemCreate",      "cuMemRelease",     "cuMemMap",    "cuMemUnmap",
      "cuMemSetAccess",   "cuMemAlloc",       "cuMemFree",   "cuEventQuery",
      "cuCtxRecordEvent", "cuCtxSynchronize", "cuMemGetInfo"};
  test::ForEachFault(allocator_entries, /*then=*/"", code, [&, vmm = vmm](test::FaultPoint& point) {
    CaptureFixture f(TightDevice(vmm), options);
    point.Arm();
    RunPoolsLife(f);
    point.Clear();
    f.RequireAllIsGivenBack();
    f.RequireNoRaces();
    REQUIRE(f.mismatches() == 0);
  });
}

}  // namespace weir
