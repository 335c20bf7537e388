#include "tools/replay/report_chart.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "tools/replay/report_page.h"
#include "tools/replay/report_text.h"
#include "tools/replay/text.h"

namespace weir::replay {
namespace {

// The drawing's own units; the page scales it to its width.
constexpr double kWidth = 760;
constexpr double kHeight = 240;
constexpr double kLeft = 74;  // room for the bytes
constexpr double kRight = 14;
constexpr double kTop = 12;
constexpr double kBottom = 34;  // room for the event numbers
constexpr size_t kPoints = 400;
constexpr int kMostTicks = 12;  // bounds the loops, whatever the values are

struct Scale {
  double from, to;        // values
  double at_from, at_to;  // drawing units
  double operator()(double value) const {
    if (to <= from) return at_from;
    return at_from + (value - from) / (to - from) * (at_to - at_from);
  }
};

// A step between ticks that gives at most `ticks` of them: 1, 2 or 5 times a power of `base`'s
// unit (1024 for bytes, so that labels are whole KiB, MiB, GiB).
double TickStep(double range, int ticks, double base) {
  const double wanted = std::max(range / ticks, 1.0);
  const double unit = std::pow(base, std::floor(std::log(wanted) / std::log(base)));
  double step = unit;
  for (double factor : {1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0}) {
    step = unit * factor;
    if (step >= wanted) break;
  }
  return step >= wanted ? step : unit * base;
}

std::string Axes(const Scale& x, const Scale& y) {
  std::string svg = "<g class=\"axes\" aria-hidden=\"true\">";
  const double y_step = TickStep(y.to, 4, 1024);
  for (int i = 0; i < kMostTicks && i * y_step <= y.to; ++i) {
    const double value = i * y_step;
    svg += SvgLine("grid", kLeft, y(value), kWidth - kRight, y(value));
    svg += SvgText(kLeft - 8, y(value) + 4, "end", value == 0 ? "0" : FormatBytes(value));
  }
  const double x_step = TickStep(x.to - x.from, 6, 10);
  const double first = std::ceil(x.from / x_step) * x_step;
  for (int i = 0; i < kMostTicks && first + i * x_step <= x.to; ++i) {
    const double value = first + i * x_step;
    svg += SvgLine("tick", x(value), kHeight - kBottom, x(value), kHeight - kBottom + 4);
    // The last label keeps clear of the axis' name at the right end.
    if (x(value) < kWidth - kRight - 90) {
      svg += SvgText(x(value), kHeight - kBottom + 17, "middle", FormatCount(value));
    }
  }
  return svg + SvgText(kWidth - kRight, kHeight - kBottom + 17, "end", "event number") + "</g>";
}

}  // namespace

std::vector<TimelinePoint> Thin(const std::vector<TimelinePoint>& points, size_t limit) {
  if (points.size() <= limit) return points;
  std::vector<TimelinePoint> thinned;
  thinned.reserve(limit);
  for (size_t i = 0; i < limit; ++i) {
    const size_t begin = i * points.size() / limit;
    const size_t end = (i + 1) * points.size() / limit;
    TimelinePoint merged = points[begin];
    for (size_t j = begin + 1; j < end; ++j) {
      merged.event = points[j].event;
      merged.requested_bytes = std::max(merged.requested_bytes, points[j].requested_bytes);
      merged.reserved_bytes = std::max(merged.reserved_bytes, points[j].reserved_bytes);
    }
    thinned.push_back(merged);
  }
  return thinned;
}

std::string RenderChart(const std::vector<TimelinePoint>& all_points, const std::string& title) {
  const std::vector<TimelinePoint> points = Thin(all_points, kPoints);
  if (points.size() < 2) return "";
  double top = 1;
  for (const TimelinePoint& p : points) {
    top = std::max({top, p.requested_bytes, p.reserved_bytes});
  }
  const Scale x{points.front().event, points.back().event, kLeft, kWidth - kRight};
  const Scale y{0, top * 1.05, kHeight - kBottom, kTop};

  std::string requested, reserved, data;
  for (const TimelinePoint& p : points) {
    const std::string at = SvgNumber(x(p.event)) + ",";
    requested += at + SvgNumber(y(p.requested_bytes)) + " ";
    reserved += at + SvgNumber(y(p.reserved_bytes)) + " ";
    data += (data.empty() ? "[" : ",[") + Fixed(p.event, 0) + "," + Fixed(p.requested_bytes, 0) +
            "," + Fixed(p.reserved_bytes, 0) + "]";
  }
  const std::string left = SvgNumber(x(points.front().event));
  const std::string right = SvgNumber(x(points.back().event));
  const std::string base = SvgNumber(y(0));

  std::string svg = "<svg class=\"chart\" role=\"img\" tabindex=\"0\" viewBox=\"0 0 " +
                    Fixed(kWidth, 0) + " " + Fixed(kHeight, 0) + "\" aria-label=\"" +
                    EscapeHtml(title) + "\" data-left=\"" + left + "\" data-right=\"" + right +
                    "\">";
  svg += Axes(x, y);
  svg += "<polygon class=\"requested-area\" points=\"" + left + "," + base + " " + requested +
         right + "," + base + "\"/>";
  svg += "<polyline class=\"requested\" points=\"" + requested + "\"/>";
  svg += "<polyline class=\"reserved\" points=\"" + reserved + "\"/>";
  svg += "<line class=\"cursor\" hidden=\"\" y1=\"" + SvgNumber(kTop) + "\" y2=\"" + base +
         "\" x1=\"0\" x2=\"0\"/></svg>";
  return svg + "<script type=\"application/json\">[" + data + "]</script>";
}

}  // namespace weir::replay
