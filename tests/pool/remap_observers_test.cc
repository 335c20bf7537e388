// Observers of remaps: told of every unmapping before, of every mapping after, of what is undone as
// well.
#include "tests/pool/fault_sweep.h"
#include "tests/pool/pins_fixture.h"
#include "tests/pool/remap_model.h"

namespace weir {
namespace {

using test::HeapFixture;
using test::RemapModel;

sim::Config TightDevice(bool vmm) {
  sim::Config config;
  config.memory_bytes = 72 * kMiB;
  config.vmm = vmm;
  return config;
}

// Growth, moves, replaced handles, stitching where that is on, merges, trims. Returns the failures.
int RunScenario(HeapFixture& f, bool merge) {
  int failures = 0;
  const CUstream side = f.NewStream();
  std::vector<std::pair<uint64_t, Stream>> live;
  const auto allocate = [&](uint64_t bytes, Stream stream) {
    HeapError error;
    const uint64_t at = f.heap().Allocate(bytes, 512, stream, &error);
    if (at != 0) {
      f.Write(stream, at, bytes);
      live.emplace_back(at, stream);
    } else {
      ++failures;
    }
  };
  const auto free_all = [&](size_t keep_every) {
    std::vector<std::pair<uint64_t, Stream>> kept;
    for (size_t i = 0; i < live.size(); ++i) {
      const bool keep = keep_every != 0 && i % keep_every == 0;
      if (keep || !f.heap().FreeAsync(live[i].first, live[i].second).ok()) kept.push_back(live[i]);
    }
    live = kept;
  };
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 5; ++i) allocate((3 + 2 * static_cast<uint64_t>(i)) * kMiB, nullptr);
    for (int i = 0; i < 2; ++i) allocate(6 * kMiB, side);
    free_all(2);
    allocate(22 * kMiB, side);
    allocate(9 * kMiB, nullptr);
    f.heap().Trim(40 * kMiB).ok();
    free_all(0);
    for (int i = 0; merge && i < 24; ++i) allocate(700 * kKiB, nullptr);
    free_all(4);
    if (merge) test::Compact(f, 0).ok();
    free_all(0);
    allocate(50 * kMiB, nullptr);
    free_all(0);
  }
  f.heap().EmptyCache().ok();
  f.RequireValid();
  return failures;
}

HeapOptions Options(bool stitch) {
  HeapOptions options;
  options.stitch = stitch;
  options.mesh = Meshing::kPressure;
  return options;
}

}  // namespace

TEST_CASE("an observer is told of each unmapping before and of each mapping after it", "[remap]") {
  const bool vmm = GENERATE(true, false);
  HeapFixture f(TightDevice(vmm), Options(GENERATE(false, true)));
  RemapModel model(f);
  sim::ResetCallCounts();
  RunScenario(f, /*merge=*/true);
  model.RequireTrue();
  // Each driver call was told, in the terms of mappings.
  REQUIRE(model.unmaps() == sim::CallCount(vmm ? "cuMemUnmap" : "cuMemFree"));
  REQUIRE(model.maps() == sim::CallCount(vmm ? "cuMemMap" : "cuMemAlloc"));
  REQUIRE(model.unmaps() > 0);
  REQUIRE(model.mapped_bytes() == 0);
  REQUIRE(sim::UsedBytes(0) == 0);
  if (vmm) REQUIRE(f.Stats().remapped_bytes > 0);
  if (vmm) REQUIRE(f.Stats().merged_granules > 0);
  f.RequireNoRaces();
}

TEST_CASE("an observer knows what is mapped whichever driver call fails", "[remap][fault]") {
  const bool vmm = GENERATE(true, false);
  const bool stitch = GENERATE(false, true);
  // Nothing is merged then: where the driver maps nothing any more, a merge loses memory in use.
  const bool for_ever = GENERATE(false, true);
  if (stitch && !vmm) return;
  const CUresult code = GENERATE(CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN);
  int undone = 0;
  const auto run = [&](test::FaultPoint& point) {
    HeapFixture f(TightDevice(vmm), Options(stitch));
    RemapModel model(f);
    point.Arm();
    RunScenario(f, /*merge=*/!for_ever);
    point.Clear();
    model.RequireTrue();
    undone += point.was_reached() && model.maps() != model.unmaps() ? 1 : 0;
    f.heap().EmptyCache().ok();
    model.RequireTrue();
    if (!for_ever) REQUIRE(model.mapped_bytes() == 0);
    f.RequireNoRaces();
  };
  for (const std::string entry : {"cuMemCreate", "cuMemRelease", "cuMemMap", "cuMemUnmap",
                                  "cuMemSetAccess", "cuMemAlloc", "cuMemFree"}) {
    test::ForEachFault({entry}, /*then=*/for_ever ? entry : "", code, run);
  }
  if (vmm || for_ever) REQUIRE(undone > 0);
}

TEST_CASE("an observer may free and take what is free, and is refused what calls the driver",
          "[remap]") {
  struct Observer {
    HeapFixture* f;
    uint64_t to_free;
    CUstream stream;
    int events = 0;
    std::vector<weir_status_t> refused;
    uint64_t hit = 0;
    static void On(int, void*, size_t, int, void* self) { static_cast<Observer*>(self)->OnEvent(); }
    void OnEvent() {
      if (events++ > 0) return;
      DeviceHeap& heap = f->heap();
      HeapError error = heap.FreeAsync(to_free, nullptr);
      if (error.ok()) hit = heap.Allocate(2 * kMiB, 512, nullptr, &error);
      HeapError miss;
      if (heap.Allocate(20 * kMiB, 512, nullptr, &miss) == 0) refused.push_back(miss.code);
      for (const HeapError& each :
           {heap.Trim(0), heap.EmptyCache(), heap.PinRange(hit, 512), heap.UnpinRange(hit, 512),
            heap.Preallocate(kMiB), heap.StreamDestroyed(stream), heap.ReleasePool(1),
            heap.BeginRoute(1, nullptr, nullptr)}) {
        refused.push_back(each.code);
      }
      weir_stats_t stats;
      heap.GetStats(&stats);
      if (heap.UsableSize(hit) < 2 * kMiB) refused.push_back(WEIR_OK);
    }
  };
  HeapOptions options;
  options.marker_bytes = 0;  // each deferred free would record a marker
  HeapFixture f({}, options);
  Observer observer{&f, f.Allocate(2 * kMiB), f.NewStream(), 0, {}, 0};
  RemapObservers::Get().observers().Add({&Observer::On, &observer});
  const uint64_t at = f.Allocate(30 * kMiB);
  REQUIRE(RemapObservers::Get().observers().Remove({&Observer::On, &observer}));
  REQUIRE(observer.events > 0);
  REQUIRE(observer.hit == observer.to_free);
  REQUIRE(observer.refused == std::vector<weir_status_t>(9, WEIR_ERROR_IN_CALLBACK));
  // Outside everything works again.
  f.FreeAsync(at);
  f.FreeAsync(observer.hit);
  const int events = observer.events;
  REQUIRE(f.heap().EmptyCache().ok());
  REQUIRE(observer.events == events);  // removed
  f.RequireValid();
}

TEST_CASE("a deferred free inside an observer waits for the next miss", "[remap]") {
  struct Observer {
    HeapFixture* f;
    uint64_t to_free;
    bool freed = false;
    static void On(int, void*, size_t, int, void* self) {
      auto& o = *static_cast<Observer*>(self);
      if (!o.freed) o.freed = o.f->heap().Free(o.to_free).ok();
    }
  };
  HeapOptions options;
  options.marker_bytes = 1;
  HeapFixture f({}, options);
  Observer observer{&f, f.Allocate(4 * kMiB, kAnyStream)};
  RemapObservers::Get().observers().Add({&Observer::On, &observer});
  const uint64_t at = f.Allocate(30 * kMiB);
  REQUIRE(RemapObservers::Get().observers().Remove({&Observer::On, &observer}));
  REQUIRE(observer.freed);
  REQUIRE(f.Stats().deferred_frees == 1);
  f.FreeAsync(at);
  REQUIRE(f.heap().EmptyCache().ok());
  REQUIRE(f.Stats().reserved_bytes == 0);
  f.RequireValid();
}

}  // namespace weir
