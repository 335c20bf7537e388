// `weir fit`: the smallest simulated device on which each trace completes, and what a device that
// is hardly larger costs.
#ifndef WEIR_TOOLS_REPLAY_FIT_COMMAND_H_
#define WEIR_TOOLS_REPLAY_FIT_COMMAND_H_

#include <cstdint>
#include <string>
#include <vector>

namespace weir::replay {

struct FitCommand {
  std::vector<std::string> traces;
  std::vector<std::string> allocators = {"weir"};
  std::vector<std::string> weir_options;  // each is one more run of Weir; none: one without
  uint64_t scale = 1;                     // of every request
  size_t parallel = 1;
  std::string json_path;    // "" = none
  std::string report_path;  // "" = none
};

// Searches, prints, writes the files. Returns the exit status.
int RunFitCommand(const FitCommand& command);

}  // namespace weir::replay

#endif  // WEIR_TOOLS_REPLAY_FIT_COMMAND_H_
