// A replay's result as text for a terminal.
#ifndef WEIR_TOOLS_REPLAY_REPLAY_PRINT_H_
#define WEIR_TOOLS_REPLAY_REPLAY_PRINT_H_

#include <nlohmann/json.hpp>

namespace weir::replay {

// One run, a few lines.
void PrintRun(const nlohmann::json& run);

// A table of all runs, with the geometric mean and the worst ratio of the first and last pass.
void PrintSummary(const nlohmann::json& runs);

}  // namespace weir::replay

#endif  // WEIR_TOOLS_REPLAY_REPLAY_PRINT_H_
