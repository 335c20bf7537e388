// Checks of what driver calls cost, in the clock that slow driver calls are charged by: the
// monotonic clock on a GPU, virtual time on the simulated device. Medians of several calls. The
// details of these checks are meant for the cost model of tools/simcuda (SetCost): ns per call, per
// handle and per MiB.
#include <algorithm>
#include <cmath>

#include "tools/gpu_check/checks.h"
#include "tools/gpu_check/gpu.h"
#include "tools/gpu_check/resources.h"
#include "tools/gpu_check/timing.h"

namespace weir::gpu_check {
namespace {

// Medians of the five calls for `handles` adjacent handles of `mib` MiB each, in ns. Create, map
// and release are per call (one handle each); access and unmap are one call over all handles.
struct MappingCosts {
  double create, map, access, unmap, release;
  nlohmann::json Json() const {
    return {{"cuMemCreate", create},
            {"cuMemMap", map},
            {"cuMemSetAccess", access},
            {"cuMemUnmap", unmap},
            {"cuMemRelease", release}};
  }
};

MappingCosts MeasureMapping(const Gpu& gpu, uint64_t mib, uint64_t handles, int repeats) {
  const Api& api = gpu.api();
  const CUmemAllocationProp properties = gpu.Properties();
  const uint64_t bytes = mib * kMiB;
  const ScopedRange range(gpu, handles * bytes);
  Samples create, map, access, unmap, release;
  for (int round = 0; round < repeats; ++round) {
    std::vector<CUmemGenericAllocationHandle> made(handles);
    for (uint64_t i = 0; i < handles; ++i) {
      create.Time(gpu, "cuMemCreate",
                  [&] { return api.MemCreate(&made[i], bytes, &properties, 0); });
      map.Time(gpu, "cuMemMap",
               [&] { return api.MemMap(range.base() + i * bytes, bytes, 0, made[i], 0); });
    }
    access.Time(gpu, "cuMemSetAccess",
                [&] { return ScopedRange::SetAccess(gpu, range.base(), handles * bytes); });
    unmap.Time(gpu, "cuMemUnmap", [&] { return api.MemUnmap(range.base(), handles * bytes); });
    for (const CUmemGenericAllocationHandle handle : made) {
      release.Time(gpu, "cuMemRelease", [&] { return api.MemRelease(handle); });
    }
  }
  return {create.Median(), map.Median(), access.Median(), unmap.Median(), release.Median()};
}

nlohmann::json CostJson(double call_ns, double per_handle_ns, double per_mib_ns) {
  const auto round = [](double ns) { return std::round(std::max(0.0, ns)); };
  return {{"call_ns", round(call_ns)},
          {"per_handle_ns", round(per_handle_ns)},
          {"per_mib_ns", round(per_mib_ns)}};
}

}  // namespace

Answer CheckMappingLatency(const Gpu& gpu) {
  Answer answer;
  gpu.Granularity();
  (void)MeasureMapping(gpu, 2, 1, 3);  // warm-up
  const MappingCosts small = MeasureMapping(gpu, 2, 1, 40);
  const MappingCosts medium = MeasureMapping(gpu, 20, 1, 20);
  const MappingCosts large = MeasureMapping(gpu, 200, 1, 10);
  constexpr double kHandles = 10;
  const MappingCosts ten = MeasureMapping(gpu, 2, 10, 10);

  answer.detail["ns_2MiB"] = small.Json();
  answer.detail["ns_20MiB"] = medium.Json();
  answer.detail["ns_200MiB"] = large.Json();
  answer.detail["ns_10_handles_of_2MiB"] = ten.Json();
  // A call costs call + handles * per_handle + MiB * per_mib. Two measurements with one handle give
  // per_mib, one with ten handles gives per_handle.
  const auto fit = [&](const char* name, double MappingCosts::*part, bool many_handles) {
    const double per_mib = std::max(0.0, (large.*part - small.*part) / 198);
    const double one = small.*part - 2 * per_mib;  // call + per_handle
    const double slope = (ten.*part - small.*part) / (kHandles - 1) - 2 * per_mib;
    const double per_handle = many_handles ? std::clamp(slope, 0.0, std::max(0.0, one)) : 0;
    answer.detail["cost_model"][name] = CostJson(one - per_handle, per_handle, per_mib);
  };
  fit("cuMemCreate", &MappingCosts::create, false);
  fit("cuMemMap", &MappingCosts::map, false);
  fit("cuMemSetAccess", &MappingCosts::access, true);
  fit("cuMemUnmap", &MappingCosts::unmap, true);
  fit("cuMemRelease", &MappingCosts::release, false);

  answer.observed = "2 MiB: create " + Us(small.create) + ", map " + Us(small.map) + ", access " +
                    Us(small.access) + ", unmap " + Us(small.unmap) + ", release " +
                    Us(small.release) + "; 200 MiB: create " + Us(large.create) + ", access " +
                    Us(large.access);
  answer.agrees = IsWithin3x(small.create, 31'000) && IsWithin3x(large.create, 229'000) &&
                  IsWithin3x(small.map, 4'000) && IsWithin3x(small.access, 28'000) &&
                  IsWithin3x(ten.access, 55'000) && IsWithin3x(small.unmap, 20'000) &&
                  IsWithin3x(ten.unmap, 200'000) && IsWithin3x(small.release, 20'000);
  LabelClock(gpu, &answer);
  return answer;
}

Answer CheckClassicLatency(const Gpu& gpu) {
  Answer answer;
  const auto measure = [&](uint64_t mib, double* alloc_ns, double* free_ns) {
    Samples alloc, free;
    for (int i = 0; i < 20; ++i) {
      CUdeviceptr at = 0;
      alloc.Time(gpu, "cuMemAlloc", [&] { return gpu.api().MemAlloc(&at, mib * kMiB); });
      free.Time(gpu, "cuMemFree", [&] { return gpu.api().MemFree(at); });
    }
    *alloc_ns = alloc.Median();
    *free_ns = free.Median();
    answer.detail["ns_" + std::to_string(mib) + "MiB"] = {{"cuMemAlloc", *alloc_ns},
                                                          {"cuMemFree", *free_ns}};
  };
  double alloc[2], free[2];
  measure(2, &alloc[0], &free[0]);
  measure(200, &alloc[1], &free[1]);
  const auto fit = [&](const char* name, const double(&ns)[2]) {
    const double per_mib = std::max(0.0, (ns[1] - ns[0]) / 198);
    answer.detail["cost_model"][name] = CostJson(ns[0] - 2 * per_mib, 0, per_mib);
  };
  fit("cuMemAlloc", alloc);
  fit("cuMemFree", free);
  answer.observed = "2 MiB: alloc " + Us(alloc[0]) + ", free " + Us(free[0]) + "; 200 MiB: alloc " +
                    Us(alloc[1]) + ", free " + Us(free[1]);
  answer.agrees = IsWithin3x(alloc[0], 202'000) && IsWithin3x(alloc[1], 400'000) &&
                  IsWithin3x(free[0], 100'000) && IsWithin3x(free[1], 100'000);
  LabelClock(gpu, &answer);
  return answer;
}

Answer CheckHostLatency(const Gpu& gpu) {
  Answer answer;
  const auto allocate = Need(gpu.api().MemHostAlloc, "cuMemHostAlloc");
  const auto measure = [&](uint64_t mib, int repeats, double* free_ns) {
    Samples alloc, free;
    for (int i = 0; i < repeats; ++i) {
      void* memory = nullptr;
      alloc.Time(gpu, "cuMemHostAlloc",
                 [&] { return allocate(&memory, mib * kMiB, CU_MEMHOSTALLOC_PORTABLE); });
      free.Time(gpu, "cuMemFreeHost", [&] { return gpu.api().MemFreeHost(memory); });
    }
    *free_ns = free.Median();
    return alloc.Median();
  };
  constexpr double kLargeMib = 256;
  double small_free = 0;
  double large_free = 0;
  const double small = measure(1, 10, &small_free);
  const double large = measure(static_cast<uint64_t>(kLargeMib), 3, &large_free);
  const double per_mib = std::max(0.0, (large - small) / (kLargeMib - 1));
  answer.detail["ns_1MiB"] = {{"cuMemHostAlloc", small}, {"cuMemFreeHost", small_free}};
  answer.detail["ns_256MiB"] = {{"cuMemHostAlloc", large}, {"cuMemFreeHost", large_free}};
  answer.detail["ns_per_GiB"] = std::round(per_mib * 1024);
  answer.detail["cost_model"]["cuMemHostAlloc"] = CostJson(small - per_mib, 0, per_mib);
  answer.detail["cost_model"]["cuMemFreeHost"] =
      CostJson(small_free, 0, (large_free - small_free) / (kLargeMib - 1));
  answer.observed =
      "256 MiB: " + Us(large) + ", " + Us(per_mib * 1024) + " per GiB, free " + Us(large_free);
  answer.agrees = IsWithin3x(large, 25'800'000);
  LabelClock(gpu, &answer);
  return answer;
}

Answer CheckEventLatency(const Gpu& gpu) {
  Answer answer;
  const Api& api = gpu.api();
  // Many calls a sample: some take as long as a look at the clock.
  constexpr int kSamples = 20;
  constexpr int kCalls = 50;
  const ScopedStream stream(gpu);
  const ScopedEvent event(gpu);
  bool agrees = true;
  const auto measure = [&](const char* name, auto call) {
    Samples samples;
    for (int i = 0; i < kSamples; ++i) samples.Time(gpu, name, call, kCalls);
    const double ns = samples.Median();
    answer.detail["ns"][name] = ns;
    answer.detail["assumed_ns"][name] = AssumedNs(name);
    answer.detail["cost_model"][name] = CostJson(ns, 0, 0);
    answer.observed += (answer.observed.empty() ? "" : ", ") + std::string(name) + " " +
                       UsBesideModel(ns, AssumedNs(name));
    agrees = agrees && ns <= 3'000;  // cheaper than assumed is no disagreement
  };
  measure("cuEventRecord", [&] { return api.EventRecord(event.get(), stream.get()); });
  stream.Wait();
  // Only complete events are asked, or the answer would be NOT_READY.
  measure("cuEventQuery", [&] { return api.EventQuery(event.get()); });
  if (api.CtxRecordEvent != nullptr) {
    measure("cuCtxRecordEvent", [&] { return api.CtxRecordEvent(gpu.context(), event.get()); });
    gpu.Synchronize();
  }
  measure("cuCtxGetCurrent", [&] {
    CUcontext context;
    return api.CtxGetCurrent(&context);
  });
  measure("cuStreamIsCapturing", [&] {
    CUstreamCaptureStatus status;
    return api.StreamIsCapturing(stream.get(), &status);
  });
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  // An even number of calls: the thread's mode is what it was.
  static_assert(kSamples * kCalls % 2 == 0);
  measure("cuThreadExchangeStreamCaptureMode",
          [&] { return api.ThreadExchangeStreamCaptureMode(&mode); });
  measure("cuMemGetInfo", [&] {
    size_t free = 0;
    size_t total = 0;
    return api.MemGetInfo(&free, &total);
  });
  answer.agrees = agrees;
  LabelClock(gpu, &answer);
  return answer;
}

}  // namespace weir::gpu_check
