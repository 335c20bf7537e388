// What the print and the report show of a "weir-fit/1" result: its runs as plain values, and what
// the runs of one allocator have in common. Accepts results of any shape; what is missing stays
// empty.
#ifndef WEIR_TOOLS_REPLAY_FIT_FIGURES_H_
#define WEIR_TOOLS_REPLAY_FIT_FIGURES_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace weir::replay {

struct FitPassFigures {
  bool completed = false;
  std::optional<double> calls, time_us, waits;
};

struct FitCapacity {
  std::string name;  // "1.02", "unlimited"
  double bytes = 0;
  FitPassFigures first, fifth;
  std::string error;
};

struct FitRun {
  std::string trace;
  std::string allocator;  // with its options: "weir mode:tight"
  double peak_bytes = 0;
  std::optional<double> fits_in_bytes, ratio;
  double resolution_bytes = 0;
  std::vector<FitCapacity> curve;  // in the result's order
  std::string error;

  // Not so for traces of a few granules, where the ratio says nothing but how small they are.
  bool counts() const;
};

std::vector<FitRun> ReadFits(const nlohmann::json& runs);

// Over the runs that count and completed the pass.
struct FitMean {
  uint64_t runs = 0, without_calls = 0;
  double mean_us = 0, worst_us = 0;
  std::string worst_trace;
};

struct FitGroup {
  std::string allocator;
  std::vector<const FitRun*> runs;
  uint64_t counted = 0, fitted = 0;
  double geometric_mean = 0, worst = 0;  // of the ratio, over `fitted`
  std::string worst_trace;
  struct Capacity {
    std::string name;
    FitMean first, fifth;
  };
  std::vector<Capacity> capacities;
};

// One for each allocator, in the order of their first runs. Points into `runs`.
std::vector<FitGroup> GroupFits(const std::vector<FitRun>& runs);

}  // namespace weir::replay

#endif  // WEIR_TOOLS_REPLAY_FIT_FIGURES_H_
