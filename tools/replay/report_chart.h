// One timeline chart as SVG: requested and reserved bytes over the events of a trace. The picture
// needs no script; the page's script adds the readout under the pointer (report_style.h).
#ifndef WEIR_TOOLS_REPLAY_REPORT_CHART_H_
#define WEIR_TOOLS_REPLAY_REPORT_CHART_H_

#include <string>
#include <vector>

namespace weir::replay {

struct TimelinePoint {
  double event;
  double requested_bytes;
  double reserved_bytes;
};

// At most `limit` points: each stands for a run of neighbours and carries their maxima, so that no
// peak is lost. `limit` > 0.
std::vector<TimelinePoint> Thin(const std::vector<TimelinePoint>& points, size_t limit);

// The chart and, in a script element that holds data only, its points. `title` is read out by
// screen readers; it is escaped here. "" for fewer than two points.
std::string RenderChart(const std::vector<TimelinePoint>& points, const std::string& title);

}  // namespace weir::replay

#endif  // WEIR_TOOLS_REPLAY_REPORT_CHART_H_
