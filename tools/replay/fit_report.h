// The report of a fit: one self-contained HTML page for a person, made from a "weir-fit/1" result.
// All text from outside is untrusted and escaped.
#ifndef WEIR_TOOLS_REPLAY_FIT_REPORT_H_
#define WEIR_TOOLS_REPLAY_FIT_REPORT_H_

#include <string>
#include <vector>

#include "tools/replay/fit_figures.h"

namespace weir::replay {

std::string RenderFitReport(const std::vector<FitRun>& runs);

// Driver time over the size of the device, first and fifth pass, as SVG.
std::string RenderPressure(const FitRun& run);

}  // namespace weir::replay

#endif  // WEIR_TOOLS_REPLAY_FIT_REPORT_H_
