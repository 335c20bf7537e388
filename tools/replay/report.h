// The report of a replay: one self-contained HTML page for a person, made from the JSON result.
// It owns the page's wording and layout only; every figure comes from the result, and what the page
// sums up (geometric means) is computed here. All text from outside (trace names, failure texts) is
// untrusted and escaped.
#ifndef WEIR_TOOLS_REPLAY_REPORT_H_
#define WEIR_TOOLS_REPLAY_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace weir::replay {

// Renders a "weir-replay/1" result. Each run may carry "timeline", a list of
// {"event", "requested_bytes", "reserved_bytes"} in the order of events; without it the run gets no
// chart. Missing or null figures are shown as a dash. `baselines` is what ReadBaselines returned.
// Never throws for a result of another shape: it shows what it finds.
std::string RenderReport(const nlohmann::json& replay_result,
                         const nlohmann::json& baselines = nlohmann::json::object());

// PyTorch's own figures for the given trace files, from the `baselines.json` in each file's folder:
// an object keyed by trace name (TraceName). Folders without a readable one add nothing.
nlohmann::json ReadBaselines(const std::vector<std::string>& trace_paths);

// A trace's name: the file's without folder, ".gz" and one suffix of small letters, "pangu_2.6B"
// for "a/b/pangu_2.6B.csv.gz".
std::string TraceName(const std::string& trace);

}  // namespace weir::replay

#endif  // WEIR_TOOLS_REPLAY_REPORT_H_
