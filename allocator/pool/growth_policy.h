// GrowthPolicy: how far reserved memory may grow before idle memory is moved instead.
//
// The soft limit keeps fragmentation bounded; the guard keeps the price of that bounded. Guarded by
// the heap lock.
#ifndef WEIR_POOL_GROWTH_POLICY_H_
#define WEIR_POOL_GROWTH_POLICY_H_

#include <algorithm>
#include <cstdint>
#include <utility>

#include "allocator/base/bytes.h"
#include "allocator/base/heap_options.h"

namespace weir {

class GrowthPolicy {
 public:
  explicit GrowthPolicy(const HeapOptions& options)
      : options_(options), tokens_us_(options.guard_burst_ms * 1e3) {}

  // `active` bytes with the request.
  void OnLargeRequest(uint64_t active) {
    OnActive(active);
    if (++window_requests_ == kWindow) {
      window_requests_ = 0;
      last_peak_ = std::exchange(peak_, 0);
    }
    tokens_us_ = std::min(tokens_us_ + options_.guard_refill_us, options_.guard_burst_ms * 1e3);
  }
  // Driver time that moving memory took.
  void Charge(uint64_t ns) {
    tokens_us_ =
        std::max(tokens_us_ - static_cast<double>(ns) * 1e-3, -options_.guard_burst_ms * 1e3);
  }
  bool moving_is_affordable() const { return tokens_us_ >= 0; }

  // So many bytes are, or were, active.
  void OnActive(uint64_t bytes) { peak_ = std::max(peak_, bytes); }
  // So many will be if the request that is planned now can be served: only then they count for
  // later ones, so that a request that fails does not make the heap grow as if it had not.
  void OnPlan(uint64_t active) { planned_ = active; }
  void OnPlanServed() { OnActive(planned_); }
  // The program has given everything back: what it needed so far says nothing of what comes.
  void Restart(uint64_t active) {
    peak_ = active;
    last_peak_ = planned_ = 0;
    window_requests_ = 0;
  }
  // Reserved bytes up to which new memory is made, on a device (or below a limit) of hard_limit.
  uint64_t SoftLimit(uint64_t hard_limit) const {
    // Close to the end there is nothing to spare memory for; moving it early only breaks it up.
    const double peak = static_cast<double>(std::max({peak_, last_peak_, planned_}));
    if (peak >= options_.soft_limit_until * static_cast<double>(hard_limit)) return hard_limit;
    const double share = moving_is_affordable() ? options_.soft_limit : options_.soft_limit_max;
    const double limit = peak * (1 + share);
    if (limit >= 9e18) return UINT64_MAX;
    return static_cast<uint64_t>(limit) + options_.soft_limit_slack;
  }

  // Length of new handles, a multiple of the granule.
  uint64_t HandleBytes(uint64_t reserved, uint64_t granule) const {
    const uint64_t granules = reserved / granule / std::max<uint64_t>(options_.handle_divisor, 1);
    const uint64_t bytes = granule * (granules == 0 ? 1 : uint64_t{1} << FloorLog2(granules));
    return std::clamp(bytes, granule,
                      std::max(AlignDown(options_.max_handle_bytes, granule), granule));
  }

 private:
  // A peak counts until so many large requests, to twice as many, came after it: a program that
  // now needs less must not grow as if it needed what it once did.
  static constexpr uint64_t kWindow = 1 << 16;

  const HeapOptions options_;
  double tokens_us_;
  uint64_t peak_ = 0;       // of active bytes, in this window
  uint64_t last_peak_ = 0;  // in the one before
  uint64_t planned_ = 0;
  uint64_t window_requests_ = 0;
};

}  // namespace weir

#endif  // WEIR_POOL_GROWTH_POLICY_H_
