// Whichever driver call of a miss, of callbacks, or of memory made in advance and given back fails;
// and random programs: nothing succeeds for free after it has failed.
#include <random>

#include "allocator/pool/memory_callbacks.h"
#include "tests/pool/fault_sweep.h"
#include "tests/pool/heap_fixture.h"
#include "tests/support/seed.h"

namespace weir {
namespace {

using test::HeapFixture;

HeapOptions AllPolicies(bool vmm) {
  HeapOptions options;
  options.vmm = vmm;
  options.release_threshold = 16 * kMiB;
  options.idle_decay = 0.0001;
  options.gc_threshold = 0.5;
  return options;
}

sim::Config TightDevice(bool vmm) {
  sim::Config config;
  config.memory_bytes = 72 * kMiB;
  config.vmm = vmm;
  return config;
}

// A callback that frees what the scenario has put aside.
struct Reserve {
  HeapFixture* f = nullptr;
  std::vector<uint64_t> blocks;

  static size_t Free(int /*device*/, size_t /*bytes_needed*/, void* user) {
    auto* self = static_cast<Reserve*>(user);
    if (self->blocks.empty()) return 0;
    const bool freed = self->f->heap().FreeAsync(self->blocks.back(), nullptr).ok();
    self->blocks.pop_back();
    return freed ? 4 * kMiB : 0;
  }
};

void RunScenario(HeapFixture& f) {
  Reserve reserve{&f, {}};
  MemoryCallbacks::Get().Add({&Reserve::Free, &reserve});
  f.heap().Preallocate(20 * kMiB).ok();
  f.RequireValid();
  const CUstream side = f.NewStream();
  std::vector<std::pair<uint64_t, Stream>> live;
  const auto allocate = [&](uint64_t bytes, Stream stream) {
    HeapError error;
    const uint64_t at = f.heap().Allocate(bytes, 512, stream, &error);
    if (at == 0) {
      REQUIRE_FALSE(error.text.empty());
      return at;
    }
    f.Write(stream == kAnyStream ? nullptr : stream, at, bytes);
    live.emplace_back(at, stream);
    return at;
  };
  for (int i = 0; i < 4; ++i) {
    HeapError error;
    const uint64_t at = f.heap().Allocate(4 * kMiB, 512, nullptr, &error);
    if (at != 0) reserve.blocks.push_back(at);
  }
  for (int i = 0; i < 4; ++i) allocate(6 * kMiB, nullptr);
  const uint64_t used = allocate(8 * kMiB, nullptr);
  if (used != 0 && f.heap().RecordUse(used, side).ok()) {
    REQUIRE(sim::Launch(side, "use", {}) == CUDA_SUCCESS);
    if (f.heap().FreeAsync(used, nullptr).ok()) live.pop_back();
  }
  allocate(30 * kMiB, side);  // waits, and asks the callback
  f.RequireValid();
  allocate(3 * kMiB, kAnyStream);
  f.heap().Preallocate(60 * kMiB).ok();
  f.RequireValid();
  for (const auto& [at, stream] : live) {
    if (!f.heap().FreeAsync(at, stream).ok()) REQUIRE(f.heap().Free(at).ok());
  }
  allocate(2 * kMiB, nullptr);
  f.heap().Trim(UINT64_MAX).ok();
  f.heap().Trim(8 * kMiB).ok();
  f.RequireValid();
  REQUIRE(f.heap().Free(live.back().first).ok());
  for (uint64_t at : reserve.blocks) REQUIRE(f.heap().Free(at).ok());
  MemoryCallbacks::Get().Remove({&Reserve::Free, &reserve});
}

}  // namespace

TEST_CASE("whichever driver call of the ladder fails, the heap stays valid and loses nothing",
          "[ladder][fault]") {
  const bool vmm = GENERATE(true, false);
  const CUresult code = GENERATE(CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN);
  {
    HeapFixture f(TightDevice(vmm), AllPolicies(vmm));
    RunScenario(f);
    REQUIRE(f.Stats().served_callbacks > 0);
  }
  const std::vector<std::string> ours{
      "cuMemCreate",  "cuMemRelease",     "cuMemMap",           "cuMemUnmap",      "cuMemSetAccess",
      "cuMemAlloc",   "cuMemFree",        "cuEventCreate",      "cuEventRecord",   "cuEventQuery",
      "cuMemGetInfo", "cuCtxRecordEvent", "cuEventSynchronize", "cuCtxSynchronize"};
  test::ForEachFault(ours, /*then=*/"", code, [&](test::FaultPoint& point) {
    HeapFixture f(TightDevice(vmm), AllPolicies(vmm));
    point.Arm();
    RunScenario(f);
    point.Clear();
    f.RequireAllIsGivenBack();
    f.RequireNoRaces();
  });
}

TEST_CASE("a request that failed fails again at once, and changes nothing on the device",
          "[ladder][reports]") {  // pytorch 189504, cupy 1256, cudf-spark 6768
  const bool vmm = GENERATE(true, false);
  const uint64_t seed = test::Seed();
  int failures = 0;
  for (uint64_t round = 0; round < 30; ++round) {
    INFO("round " << round);
    HeapOptions options;
    options.vmm = vmm;
    if (round % 3 == 1) options.memory_limit = 80 * kMiB;
    if (round % 4 == 1) options.gc_threshold = 0.6;
    sim::Config config;
    config.memory_bytes = 96 * kMiB;
    config.vmm = vmm;
    config.seed = seed + round;
    HeapFixture f(config, options);
    std::mt19937_64 random(seed + round);
    const std::vector<Stream> streams{nullptr, f.NewStream(), f.NewStream()};
    std::vector<std::pair<uint64_t, Stream>> live;
    for (int i = 0; i < 200; ++i) {
      const Stream stream = random() % 6 == 0 ? kAnyStream : streams[random() % 3];
      if (random() % 5 < 3 || live.empty()) {
        const uint64_t bytes = 1 + random() % (uint64_t{1} << (10 + random() % 17));
        HeapError error;
        const uint64_t at = f.heap().Allocate(bytes, 512, stream, &error);
        if (at != 0) {
          f.Write(stream == kAnyStream ? nullptr : stream, at, bytes);
          live.emplace_back(at, stream);
          continue;
        }
        ++failures;
        INFO(error.text);
        REQUIRE(error.code == WEIR_ERROR_OUT_OF_MEMORY);
        const weir_stats_t before = f.Stats();
        const uint64_t used = sim::UsedBytes(0);
        sim::ResetCallCounts();
        REQUIRE(f.heap().Allocate(bytes, 512, stream, &error) == 0);
        const weir_stats_t after = f.Stats();
        REQUIRE(after.reserved_bytes == before.reserved_bytes);
        REQUIRE(after.active_bytes == before.active_bytes);
        REQUIRE(after.waits == before.waits);
        REQUIRE(sim::UsedBytes(0) == used);
        for (const char* entry : {"cuMemMap", "cuMemUnmap", "cuMemRelease", "cuMemFree"})
          REQUIRE(sim::CallCount(entry) == 0);
        f.RequireValid();
      } else {
        const size_t index = random() % live.size();
        const auto [at, owner] = live[index];
        const Stream user = streams[random() % 3];
        if (owner != kAnyStream && user != owner && random() % 3 == 0) {
          REQUIRE(sim::Launch(user, "use", {}) == CUDA_SUCCESS);
          REQUIRE(f.heap().RecordUse(at, user).ok());
        }
        f.FreeAsync(at, owner);
        live.erase(live.begin() + static_cast<long>(index));
      }
    }
    f.RequireNoRaces();
    f.RequireValid();
  }
  REQUIRE(failures > 50);
}

}  // namespace weir
