#include "tools/replay/fit_search.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "allocator/base/bytes.h"

namespace weir::replay {
namespace {

constexpr double kFactors[] = {1.00, 1.01, 1.02, 1.05, 1.10};
constexpr uint64_t kUnlimited[] = {80 * kGiB, 512 * kGiB, 8192 * kGiB};
constexpr double kResolution = 0.0005;  // of the peak

uint64_t CapacityOf(double factor, uint64_t peak_bytes) {
  const auto bytes = static_cast<uint64_t>(std::ceil(static_cast<double>(peak_bytes) * factor));
  return std::max(AlignUp(bytes, kFitGranuleBytes), kFitGranuleBytes);
}

class Search {
 public:
  Search(uint64_t peak_bytes, const Probe& probe) : peak_bytes_(peak_bytes), probe_(probe) {
    fit_.resolution_bytes = std::max(
        kFitGranuleBytes, static_cast<uint64_t>(static_cast<double>(peak_bytes) * kResolution));
  }

  Fit Run() {
    if (Unlimited() && Curve()) Bisect();
    std::sort(fit_.curve.begin(), fit_.curve.end(), [](const FitPoint& a, const FitPoint& b) {
      return a.capacity_bytes != b.capacity_bytes ? a.capacity_bytes < b.capacity_bytes
                                                  : a.factor.value_or(1e9) < b.factor.value_or(1e9);
    });
    return fit_;
  }

 private:
  // False if the search must end.
  bool Try(uint64_t bytes, uint64_t passes, ProbeResult* result) {
    *result = probe_(bytes, passes);
    if (result->broken) {
      fit_.error = result->error;
      return false;
    }
    completes_[bytes] = !result->passes.empty() && result->passes.front().completed;
    return true;
  }

  bool Measure(std::optional<double> factor, uint64_t bytes) {
    ProbeResult result;
    if (!Try(bytes, kFitPasses, &result)) return false;
    FitPoint point;
    point.factor = factor;
    point.capacity_bytes = bytes;
    point.error = result.error;
    if (!result.passes.empty()) point.first = result.passes.front();
    if (result.passes.size() == kFitPasses) point.fifth = result.passes.back();
    fit_.curve.push_back(point);
    return true;
  }

  // The first of the large devices that is enough.
  bool Unlimited() {
    const uint64_t least = CapacityOf(kFactors[std::size(kFactors) - 1], peak_bytes_);
    for (const uint64_t bytes : kUnlimited) {
      if (bytes < least) continue;
      fit_.curve.clear();
      if (!Measure(std::nullopt, bytes)) return false;
      if (completes_[bytes]) return true;
      fit_.error = fit_.curve.back().error;
    }
    if (fit_.curve.empty()) fit_.error = "the trace needs more than the largest simulated device";
    return false;
  }

  bool Curve() {
    fit_.error.clear();
    for (const double factor : kFactors) {
      if (!Measure(factor, CapacityOf(factor, peak_bytes_))) return false;
    }
    return true;
  }

  void Bisect() {
    uint64_t fits = 0, fails = 0;
    const auto look = [&] {
      for (const auto& [bytes, completes] : completes_) {
        if (completes) {
          fits = bytes;
          return;
        }
        fails = bytes;
      }
    };
    fails = AlignDown(std::max<uint64_t>(peak_bytes_, 1) - 1, kFitGranuleBytes);
    look();
    ProbeResult result;
    // What the trace takes where there is enough is most often enough, and near.
    const FitPoint& unlimited = fit_.curve.front();
    const uint64_t taken =
        AlignUp(unlimited.first.peak_reserved_bytes.value_or(0), kFitGranuleBytes);
    if (fits == unlimited.capacity_bytes && taken > fails && taken < fits) {
      if (!Try(taken, 1, &result)) return;
      look();
    }
    while (fits - fails > fit_.resolution_bytes) {
      const uint64_t middle = fails + AlignDown((fits - fails) / 2, kFitGranuleBytes);
      if (!Try(middle, 1, &result)) return;
      (completes_[middle] ? fits : fails) = middle;
    }
    fit_.fits_in_bytes = fits;
  }

  const uint64_t peak_bytes_;
  const Probe& probe_;
  Fit fit_;
  std::map<uint64_t, bool> completes_;  // what was tried
};

}  // namespace

Fit SearchFit(uint64_t peak_bytes, const Probe& probe) { return Search(peak_bytes, probe).Run(); }

}  // namespace weir::replay
