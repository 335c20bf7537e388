// A fit's result as text for a terminal.
#ifndef WEIR_TOOLS_REPLAY_FIT_PRINT_H_
#define WEIR_TOOLS_REPLAY_FIT_PRINT_H_

#include <vector>

#include "tools/replay/fit_figures.h"

namespace weir::replay {

// Where one trace fits in, and its pressure curve.
void PrintFit(const FitRun& run);

// For each allocator a table of its traces and what they have in common.
void PrintFitSummary(const std::vector<FitRun>& runs);

}  // namespace weir::replay

#endif  // WEIR_TOOLS_REPLAY_FIT_PRINT_H_
