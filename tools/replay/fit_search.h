// The search for the smallest device on which a trace completes, and its pressure curve: what
// devices a little larger than the trace's peak cost. It asks a Probe, which replays the trace on a
// device of a given size.
#ifndef WEIR_TOOLS_REPLAY_FIT_SEARCH_H_
#define WEIR_TOOLS_REPLAY_FIT_SEARCH_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace weir::replay {

// Every size of a device is a multiple of this; the simulated one rounds others down.
inline constexpr uint64_t kFitGranuleBytes = uint64_t{2} << 20;
inline constexpr uint64_t kFitPasses = 5;  // the last is the steady one

// One pass on a device of one size.
struct FitPass {
  bool completed = false;
  std::optional<uint64_t> driver_calls;  // none: the pass never began
  std::optional<double> driver_time_us;
  std::optional<uint64_t> waits;
  std::optional<uint64_t> peak_reserved_bytes;
};

struct ProbeResult {
  std::vector<FitPass> passes;  // up to the first that did not complete
  std::string error;            // of that one
  bool broken = false;          // it failed for another reason than memory: the process died, say
};

// Replays so many passes on a device of so many bytes.
using Probe = std::function<ProbeResult(uint64_t bytes, uint64_t passes)>;

struct FitPoint {
  std::optional<double> factor;  // of the peak requested bytes; none: unlimited
  uint64_t capacity_bytes = 0;
  FitPass first, fifth;
  std::string error;
};

struct Fit {
  uint64_t resolution_bytes = 0;
  std::optional<uint64_t> fits_in_bytes;  // none: not even the largest device is enough
  std::vector<FitPoint> curve;            // ascending
  std::string error;                      // "" if the search came to its end
};

// `peak_bytes` is what the trace requests at its peak of one device, so that no smaller device can
// do. What completes on some device is taken to complete on every larger one; where that is wrong,
// the result is one size that does, with one that does not within the resolution below it.
Fit SearchFit(uint64_t peak_bytes, const Probe& probe);

}  // namespace weir::replay

#endif  // WEIR_TOOLS_REPLAY_FIT_SEARCH_H_
