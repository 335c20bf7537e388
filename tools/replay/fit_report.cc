#include "tools/replay/fit_report.h"

#include <algorithm>
#include <cmath>

#include "tools/replay/report_page.h"
#include "tools/replay/report_text.h"
#include "tools/replay/text.h"

namespace weir::replay {
namespace {

// The drawing's own units; the page scales it to its width.
constexpr double kWidth = 640, kHeight = 220;
constexpr double kLeft = 70, kRight = 20, kTop = 14, kBottom = 30;
// Times are drawn by their logarithm, from here on; what is less, none included, is at the bottom.
constexpr double kLeastUs = 1;

constexpr char kOrigin[] =
    "<span class=\"label\">simulated device, no GPU time</span> Driver time is the number of "
    "driver calls times assumed costs. ";

std::string Ratio(const FitRun& run) { return run.ratio ? Fixed(*run.ratio, 4) : kNoFigure; }

std::string Cell(const std::string& text) { return "<td>" + EscapeHtml(text) + "</td>"; }

std::string TimeOf(const FitPassFigures& pass) {
  return FormatMicroseconds(pass.completed ? pass.time_us : std::nullopt);
}

std::string CallsOf(const FitPassFigures& pass) {
  return FormatCount(pass.completed ? pass.calls : std::nullopt);
}

// Groups' means as bars, of what is above 1: there all the difference is.
std::string Headline(const std::vector<FitGroup>& groups) {
  double widest = 1e-9;
  for (const FitGroup& group : groups) widest = std::max(widest, group.geometric_mean - 1);
  std::string html =
      "<div class=\"headline\"><p class=\"figure\">The smallest device on which the traces "
      "complete ÷ what they request at their peak (geometric mean; 1 is perfect; the bars begin at "
      "1):</p><dl class=\"bars\">";
  for (const FitGroup& group : groups) {
    if (group.fitted == 0) continue;
    html += HtmlBar(group.allocator.rfind("weir", 0) == 0 ? "weir" : "peer", group.allocator,
                    std::max(group.geometric_mean - 1, 0.0), widest,
                    Fixed(group.geometric_mean, 4) + " (worst " + Fixed(group.worst, 4) + ", " +
                        group.worst_trace + ")");
  }
  return html + "</dl></div>";
}

std::string Table(const FitGroup& group) {
  std::string html =
      "<h2>" + EscapeHtml(group.allocator) + "</h2><p class=\"quiet\">" + kOrigin +
      "Per device: driver time of the first pass / of the fifth; a dash where the "
      "trace did not get so far. Traces whose peak is below 64 MiB are a few granules of 2 "
      "MiB and are in no mean.</p><div class=\"wide\"><table><thead><tr>";
  for (const char* name : {"Trace", "Peak requested", "Fits in", "Ratio"}) {
    html += std::string("<th scope=\"col\">") + name + "</th>";
  }
  for (const auto& capacity : group.capacities) {
    html += "<th scope=\"col\">" + EscapeHtml(capacity.name) + "</th>";
  }
  html += "</tr></thead><tbody>\n";
  for (const FitRun* run : group.runs) {
    html += "<tr><th scope=\"row\">" + EscapeHtml(run->trace) + "</th>" +
            Cell(FormatBytes(run->peak_bytes)) + Cell(FormatBytes(run->fits_in_bytes)) +
            Cell(Ratio(*run));
    for (const FitCapacity& point : run->curve) {
      html += Cell(TimeOf(point.first) + " / " + TimeOf(point.fifth));
    }
    html += "</tr>\n";
  }
  html += "<tr><th scope=\"row\">complete / in all five passes</th><td></td><td></td><td></td>";
  for (const auto& capacity : group.capacities) {
    html += Cell(std::to_string(capacity.first.runs) + " / " + std::to_string(capacity.fifth.runs) +
                 " of " + std::to_string(group.counted));
  }
  return html + "</tr></tbody></table></div>";
}

class Drawing {
 public:
  explicit Drawing(const FitRun& run) : run_(run) {
    for (const FitCapacity& point : run.curve) {
      for (const FitPassFigures& pass : {point.first, point.fifth}) {
        if (pass.completed) most_us_ = std::max(most_us_, pass.time_us.value_or(0));
      }
    }
  }

  std::string Svg() const {
    std::string svg = "<svg class=\"pressure\" role=\"img\" viewBox=\"0 0 " + Fixed(kWidth, 0) +
                      " " + Fixed(kHeight, 0) + "\" aria-label=\"" +
                      EscapeHtml(run_.trace + ", " + run_.allocator +
                                 ": driver time over the size of the device") +
                      "\">";
    for (double us = kLeastUs; us <= most_us_ * 1.0001; us *= 10) {
      svg += SvgLine("grid", kLeft, Y(us), kWidth - kRight, Y(us));
      svg += SvgText(kLeft - 8, Y(us) + 4, "end", FormatMicroseconds(us));
    }
    for (size_t i = 0; i < run_.curve.size(); ++i) {
      svg += SvgText(X(i), kHeight - kBottom + 18, "middle", run_.curve[i].name);
      if (run_.curve[i].first.completed) continue;
      svg += "<text class=\"bad\" x=\"" + SvgNumber(X(i)) + "\" y=\"" + SvgNumber(kTop + 12) +
             "\" text-anchor=\"middle\">too small</text>";
    }
    return svg + Curve("requested", &FitCapacity::first) + Curve("reserved", &FitCapacity::fifth) +
           "</svg>";
  }

 private:
  double X(size_t index) const {
    const double step = (kWidth - kLeft - kRight) / static_cast<double>(run_.curve.size());
    return kLeft + step * (static_cast<double>(index) + 0.5);
  }
  double Y(double us) const {
    const double share =
        std::log(std::max(us, kLeastUs) / kLeastUs) / std::log(most_us_ / kLeastUs);
    return kHeight - kBottom - share * (kHeight - kBottom - kTop);
  }
  std::string Curve(const char* css_class, FitPassFigures FitCapacity::*which) const {
    std::string points, dots;
    for (size_t i = 0; i < run_.curve.size(); ++i) {
      const FitPassFigures& pass = run_.curve[i].*which;
      if (!pass.completed || !pass.time_us) continue;
      const std::string x = SvgNumber(X(i)), y = SvgNumber(Y(*pass.time_us));
      points += x + "," + y + " ";
      dots += std::string("<circle class=\"") + css_class + "\" cx=\"" + x + "\" cy=\"" + y +
              "\" r=\"3\"/>";
    }
    return std::string("<polyline class=\"") + css_class + "\" points=\"" + points + "\"/>" + dots;
  }

  const FitRun& run_;
  double most_us_ = 10 * kLeastUs;
};

std::string RunSection(const FitRun& run) {
  std::string html = "<section class=\"trace\"><h3>" +
                     EscapeHtml(run.trace + ", " + run.allocator) + "</h3><p>Peak requested " +
                     FormatBytes(run.peak_bytes);
  if (run.fits_in_bytes) {
    html += ", fits in " + FormatBytes(run.fits_in_bytes) + " (ratio " + Ratio(run) + ", to " +
            FormatBytes(run.resolution_bytes) + ").</p>";
  } else {
    html += ".</p><p class=\"bad\">" + EscapeHtml(run.error) + "</p>";
  }
  if (run.curve.empty()) return html + "</section>\n";
  html += "<figure>" + RenderPressure(run) +
          "<div class=\"legend\"><span><span class=\"key requested\"></span>first pass</span>"
          "<span><span class=\"key reserved\"></span>fifth pass</span></div></figure>"
          "<details><summary>Figures</summary><table><thead><tr>";
  for (const char* name : {"Device ÷ peak", "Bytes", "Driver calls, first pass", "Driver time",
                           "Driver calls, fifth pass", "Driver time"}) {
    html += std::string("<th scope=\"col\">") + name + "</th>";
  }
  html += "<th class=\"text\" scope=\"col\"></th></tr></thead><tbody>";
  for (const FitCapacity& point : run.curve) {
    html += "<tr><th scope=\"row\">" + EscapeHtml(point.name) + "</th>" +
            Cell(FormatBytes(point.bytes)) + Cell(CallsOf(point.first)) +
            Cell(TimeOf(point.first)) + Cell(CallsOf(point.fifth)) + Cell(TimeOf(point.fifth)) +
            "<td class=\"failure\">" + EscapeHtml(point.error) + "</td></tr>\n";
  }
  return html + "</tbody></table></details></section>\n";
}

}  // namespace

std::string RenderPressure(const FitRun& run) { return Drawing(run).Svg(); }

std::string RenderFitReport(const std::vector<FitRun>& runs) {
  const std::vector<FitGroup> groups = GroupFits(runs);
  std::string html =
      "<p>How small a device recorded programs fit in, and what a device that is hardly large "
      "enough costs.</p>";
  if (runs.empty()) html += "<p class=\"bad\">The result holds no runs.</p>";
  if (!groups.empty()) html += Headline(groups);
  for (const FitGroup& group : groups) html += Table(group);
  if (!runs.empty()) {
    html += std::string("<h2>Pressure</h2><p class=\"quiet\">") + kOrigin +
            "Devices of 1.00 to 1.10 times the peak that is requested, and one with room for "
            "anything. The scale is logarithmic.</p>\n";
  }
  for (const FitRun& run : runs) html += RunSection(run);
  return HtmlPage("Weir fit report", html);
}

}  // namespace weir::replay
