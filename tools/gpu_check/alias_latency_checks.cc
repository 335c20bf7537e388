// Checks of what stitching and merging cost, beside the prices of the cost model, and of how fast
// memory is that was stitched. Clock as in timing.h.
#include <array>

#include "tools/gpu_check/checks.h"
#include "tools/gpu_check/gpu.h"
#include "tools/gpu_check/resources.h"
#include "tools/gpu_check/timing.h"

namespace weir::gpu_check {
namespace {

// A step's measured and assumed durations, ns, under a name.
struct Step {
  const char* name;
  double assumed;
  Samples samples;
};

nlohmann::json Json(double ns, double assumed_ns) {
  return {{"us", ns / 1000}, {"assumed_us", assumed_ns / 1000}};
}

// Adjacent mappings of handles of one granule, in the order of creation or reversed.
class Stitched {
 public:
  Stitched(const Gpu& gpu, uint64_t handles, bool reversed) : range_(gpu, handles * Unit(gpu)) {
    for (uint64_t i = 0; i < handles; ++i) {
      handles_.push_back(std::make_unique<ScopedHandle>(gpu, Unit(gpu)));
    }
    for (uint64_t i = 0; i < handles; ++i) {
      const uint64_t place = reversed ? handles - 1 - i : i;
      range_.MapOnly(place * Unit(gpu), Unit(gpu), handles_[i]->get());
    }
    Must(ScopedRange::SetAccess(gpu, range_.base(), range_.bytes()), "cuMemSetAccess");
  }
  CUdeviceptr base() const { return range_.base(); }
  CUmemGenericAllocationHandle handle(uint64_t i) const { return handles_[i]->get(); }

 private:
  static uint64_t Unit(const Gpu& gpu) { return gpu.Granularity(); }
  std::vector<std::unique_ptr<ScopedHandle>> handles_;
  ScopedRange range_;
};

}  // namespace

Answer CheckStitchLatency(const Gpu& gpu) {
  const Api& api = gpu.api();
  const uint64_t unit = gpu.Granularity();
  const CUmemAllocationProp properties = gpu.Properties();
  Answer answer;
  answer.agrees = true;
  Step create{"create", AssumedNs("cuMemCreate", 1, unit), {}};
  Step release{"release", AssumedNs("cuMemRelease", 1), {}};
  for (int i = 0; i < 40; ++i) {
    CUmemGenericAllocationHandle handle = 0;
    create.samples.Time(gpu, "cuMemCreate",
                        [&] { return api.MemCreate(&handle, unit, &properties, 0); });
    release.samples.Time(gpu, "cuMemRelease", [&] { return api.MemRelease(handle); });
  }
  const auto note = [&](nlohmann::json* detail, Step* step) {
    const double ns = step->samples.Median();
    (*detail)[step->name] = Json(ns, step->assumed);
    answer.agrees = *answer.agrees && IsWithin3x(ns, step->assumed);
    return std::string(step->name) + " " + UsBesideModel(ns, step->assumed);
  };
  answer.observed = note(&answer.detail, &create) + ", " + note(&answer.detail, &release);

  for (const uint64_t n : {uint64_t{1}, uint64_t{16}, uint64_t{256}}) {
    const Stitched memory(gpu, n, /*reversed=*/false);  // where it stays mapped
    const double assumed = static_cast<double>(n) * AssumedNs("cuMemMap", 1);
    Step stitch{"stitch", assumed + AssumedNs("cuMemSetAccess", n), {}};
    Step unmap{"unmap", AssumedNs("cuMemUnmap", n), {}};
    for (int round = 0; round < 10; ++round) {
      ScopedRange aliases(gpu, n * unit);
      stitch.samples.Time(gpu, "cuMemMap, cuMemSetAccess", [&] {
        for (uint64_t i = 0; i < n; ++i) {
          const CUresult result = aliases.TryMap(i * unit, unit, memory.handle(i));
          if (result != CUDA_SUCCESS) return result;
        }
        return ScopedRange::SetAccess(gpu, aliases.base(), aliases.bytes());
      });
      unmap.samples.Time(gpu, "cuMemUnmap",
                         [&] { return api.MemUnmap(aliases.base(), aliases.bytes()); });
      aliases.ForgetMappings();
    }
    const std::string name = "n = " + std::to_string(n);
    nlohmann::json& detail = answer.detail[name];
    answer.observed += "; " + name + ": " + note(&detail, &stitch) + ", " + note(&detail, &unmap);
  }
  LabelClock(gpu, &answer);
  return answer;
}

Answer CheckMergeLatency(const Gpu& gpu) {
  const Api& api = gpu.api();
  const uint64_t unit = gpu.Granularity();
  const uint64_t half = unit / 2;
  // As Weir merges: all work complete, the used bytes copied, and the second granule's address
  // mapped to the first one's memory.
  Step steps[] = {{"synchronize", AssumedNs("cuCtxSynchronize"), {}},
                  {"copy and synchronize",
                   AssumedNs("cuMemcpyAsync", 0, half) + AssumedNs("cuCtxSynchronize"),
                   {}},
                  {"unmap", AssumedNs("cuMemUnmap", 1), {}},
                  {"map", AssumedNs("cuMemMap", 1), {}},
                  {"access", AssumedNs("cuMemSetAccess", 1), {}},
                  {"release", AssumedNs("cuMemRelease", 1), {}}};
  const ScopedHandle host(gpu, unit);
  ScopedRange one(gpu, unit);
  one.Map(0, unit, host.get());
  for (int round = 0; round < 20; ++round) {
    ScopedHandle guest(gpu, unit);
    ScopedRange two(gpu, unit);
    two.Map(0, unit, guest.get());
    gpu.Set(two.base(), 1, unit);
    size_t next = 0;
    const auto time = [&](auto call) {
      steps[next].samples.Time(gpu, steps[next].name, call);
      ++next;
    };
    time([&] { return api.CtxSynchronize(); });
    time([&] {
      const CUresult result = api.MemcpyAsync(one.base() + half, two.base() + half, half, nullptr);
      return result == CUDA_SUCCESS ? api.CtxSynchronize() : result;
    });
    time([&] { return api.MemUnmap(two.base(), unit); });
    two.ForgetMappings();
    time([&] { return two.TryMap(0, unit, host.get()); });
    time([&] { return ScopedRange::SetAccess(gpu, two.base(), unit); });
    time([&] { return api.MemRelease(guest.get()); });
    guest.Forget();
  }
  Answer answer;
  double sum = 0, assumed = 0, mapping = 0, assumed_mapping = 0;
  for (size_t i = 0; i < std::size(steps); ++i) {
    const double ns = steps[i].samples.Median();
    answer.detail[steps[i].name] = Json(ns, steps[i].assumed);
    answer.observed +=
        std::string(", ") + steps[i].name + " " + UsBesideModel(ns, steps[i].assumed);
    sum += ns;
    assumed += steps[i].assumed;
    // What a wait costs depends on what is waited for; here nothing is.
    if (i < 2) continue;
    mapping += ns;
    assumed_mapping += steps[i].assumed;
  }
  answer.detail["sum"] = Json(sum, assumed);
  answer.observed = UsBesideModel(sum, assumed) + answer.observed;
  answer.agrees = mapping <= 3 * assumed_mapping;
  LabelClock(gpu, &answer);
  return answer;
}

Answer CheckStitchedBandwidth(const Gpu& gpu) {
  const uint64_t unit = gpu.Granularity();
  const uint64_t bytes = gpu.simulated() ? 4 * unit : AlignUp(128 * kMiB, unit);
  const int copies = gpu.simulated() ? 1 : 20;
  const Stitched stitched(gpu, bytes / unit, /*reversed=*/true);
  const ScopedHandle handle(gpu, bytes);
  ScopedRange whole(gpu, bytes);
  whole.Map(0, bytes, handle.get());
  const ScopedDeviceMemory other(gpu, bytes);
  gpu.Set(stitched.base(), 1, bytes);
  gpu.Set(whole.base(), 1, bytes);
  gpu.Set(other.get(), 1, bytes);
  const ScopedStream stream(gpu);
  // Bytes copied per ns, away from the memory and to it. By the driver's copy, which uses as much
  // of the device as it can; the kernels of these checks copy single bytes.
  std::array<Samples, 4> samples;
  const auto measure = [&](Samples* to, CUdeviceptr dst, CUdeviceptr src) {
    to->Time(gpu, "cuMemcpyAsync", [&] {
      for (int i = 0; i < copies; ++i) {
        const CUresult result = gpu.api().MemcpyAsync(dst, src, bytes, stream.get());
        if (result != CUDA_SUCCESS) return result;
      }
      return gpu.api().StreamSynchronize(stream.get());
    });
  };
  for (int round = 0; round < 9; ++round) {
    measure(&samples[0], other.get(), stitched.base());
    measure(&samples[1], other.get(), whole.base());
    measure(&samples[2], stitched.base(), other.get());
    measure(&samples[3], whole.base(), other.get());
  }
  Answer answer;
  double ns[4];
  for (size_t i = 0; i < 4; ++i) ns[i] = samples[i].Median();
  const auto gb_per_s = [&](double each) {
    return static_cast<double>(bytes) * copies / std::max(each, 1.0);
  };
  answer.detail = {{"bytes", bytes},
                   {"copies", copies},
                   {"read_ratio", ns[1] / ns[0]},
                   {"write_ratio", ns[3] / ns[2]},
                   {"read_GB_per_s", {{"stitched", gb_per_s(ns[0])}, {"whole", gb_per_s(ns[1])}}},
                   {"write_GB_per_s", {{"stitched", gb_per_s(ns[2])}, {"whole", gb_per_s(ns[3])}}}};
  char text[160];
  std::snprintf(text, sizeof(text),
                "stitched / whole: read %.3f, write %.3f (copies of the whole handle: %.0f GB/s)",
                ns[1] / ns[0], ns[3] / ns[2], gb_per_s(ns[1]));
  answer.observed = text;
  LabelClock(gpu, &answer);
  return answer;
}

}  // namespace weir::gpu_check
