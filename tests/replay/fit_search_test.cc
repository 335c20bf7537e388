// Tests of the search for the smallest device, with probes whose answer is known.
#include "tools/replay/fit_search.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/support/catch.h"

namespace weir::replay {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20, kGiB = uint64_t{1} << 30;

// Completes on devices of `least` bytes and more, its later passes on those of `least_later`.
struct Device {
  uint64_t least, least_later;
  uint64_t reserved = 0;  // where there is room
  std::vector<uint64_t> asked = {};

  Probe AsProbe() {
    return [this](uint64_t bytes, uint64_t passes) {
      asked.push_back(bytes);
      ProbeResult result;
      for (uint64_t pass = 1; pass <= passes; ++pass) {
        FitPass one;
        one.completed = bytes >= (pass == 1 ? least : least_later);
        one.driver_calls = pass;
        one.driver_time_us = 10.0 * static_cast<double>(pass);
        one.peak_reserved_bytes = std::min(bytes, std::max(reserved, least));
        result.passes.push_back(one);
        if (one.completed) continue;
        result.error = "too small";
        break;
      }
      return result;
    };
  }
};

Fit Search(uint64_t peak, Device* device) { return SearchFit(peak, device->AsProbe()); }

TEST_CASE("the smallest device is found to one granule, or to 0.0005 of a large peak", "[fit]") {
  for (const uint64_t peak : {2 * kMiB, 7 * kMiB, 100 * kMiB, 3 * kGiB, 24 * kGiB + 12345}) {
    for (const double above : {1.0, 1.0003, 1.004, 1.015, 1.08, 1.5, 2.9}) {
      const uint64_t least =
          std::max<uint64_t>(peak, static_cast<uint64_t>(static_cast<double>(peak) * above));
      Device device{least, least};
      const Fit fit = Search(peak, &device);
      INFO(peak << " bytes, least " << least);
      REQUIRE(fit.fits_in_bytes.has_value());
      CHECK(fit.error.empty());
      CHECK(fit.resolution_bytes ==
            std::max(2 * kMiB, static_cast<uint64_t>(0.0005 * static_cast<double>(peak))));
      CHECK(*fit.fits_in_bytes >= least);
      CHECK(*fit.fits_in_bytes < least + fit.resolution_bytes);
      for (const uint64_t bytes : device.asked) CHECK(bytes % (2 * kMiB) == 0);
    }
  }
}

TEST_CASE("a curve has six devices, and first and fifth pass of each", "[fit]") {
  Device device{1015 * kMiB, 1040 * kMiB};
  const Fit fit = Search(1000 * kMiB, &device);
  REQUIRE(fit.curve.size() == 6);
  const auto bytes_of = [](double factor) {
    return static_cast<uint64_t>(std::ceil(static_cast<double>(1000 * kMiB) * factor));
  };
  const double factors[] = {1.00, 1.01, 1.02, 1.05, 1.10};
  for (size_t i = 0; i < 5; ++i) {
    CHECK(fit.curve[i].factor == factors[i]);
    CHECK(fit.curve[i].capacity_bytes >= bytes_of(factors[i]));
    CHECK(fit.curve[i].capacity_bytes < bytes_of(factors[i]) + 2 * kMiB);
  }
  CHECK(!fit.curve[5].factor.has_value());
  CHECK(fit.curve[5].capacity_bytes == 80 * kGiB);
  CHECK(!fit.curve[1].first.completed);  // 1.01
  CHECK(fit.curve[1].error == "too small");
  CHECK(fit.curve[2].first.completed);  // 1.02
  CHECK(!fit.curve[2].fifth.completed);
  CHECK(!fit.curve[2].fifth.driver_calls.has_value());
  CHECK(fit.curve[3].fifth.completed);
  CHECK(fit.curve[3].fifth.driver_calls == 5);
  CHECK(fit.curve[3].fifth.driver_time_us == 50);
  CHECK(fit.fits_in_bytes == 1016 * kMiB);  // one pass is enough
}

TEST_CASE("a trace that needs more than 80 GiB is unlimited on 512 GiB", "[fit]") {
  Device by_peak{460 * kGiB, 460 * kGiB};
  CHECK(Search(450 * kGiB, &by_peak).curve.back().capacity_bytes == 512 * kGiB);
  Device by_trial{100 * kGiB, 100 * kGiB};
  const Fit fit = Search(60 * kGiB, &by_trial);
  CHECK(fit.curve.back().capacity_bytes == 512 * kGiB);
  CHECK(*fit.fits_in_bytes >= 100 * kGiB);
  CHECK(fit.curve.size() == 6);
}

TEST_CASE("what completes nowhere has no size, and says why", "[fit]") {
  Device device{UINT64_MAX, UINT64_MAX};
  const Fit fit = Search(kGiB, &device);
  CHECK(!fit.fits_in_bytes.has_value());
  CHECK(fit.error == "too small");
  Device unasked{0, 0};
  CHECK(!Search(uint64_t{1} << 60, &unasked).error.empty());
  CHECK(unasked.asked.empty());
}

TEST_CASE("a probe that breaks ends the search", "[fit]") {
  int asked = 0;
  const Fit fit = SearchFit(kGiB, [&](uint64_t, uint64_t) {
    ProbeResult result;
    result.broken = ++asked == 3;
    result.error = "died";
    result.passes.resize(5, FitPass{true, 0, 0.0, 0, 0});
    return result;
  });
  CHECK(asked == 3);
  CHECK(!fit.fits_in_bytes.has_value());
  CHECK(fit.error == "died");
}

TEST_CASE("a search asks few devices", "[fit]") {
  Device near{24 * kGiB + 100 * kMiB, 24 * kGiB + 100 * kMiB};
  Search(24 * kGiB, &near);
  CHECK(near.asked.size() <= 6 + 5);
  Device far{30 * kGiB, 30 * kGiB};
  Search(24 * kGiB, &far);
  CHECK(far.asked.size() <= 6 + 10);
}

}  // namespace
}  // namespace weir::replay
