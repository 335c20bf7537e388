#include "tools/replay/report.h"

#include <algorithm>
#include <cstddef>
#include <set>

#include "tools/replay/report_chart.h"
#include "tools/replay/report_figures.h"
#include "tools/replay/report_page.h"
#include "tools/replay/report_text.h"
#include "tools/replay/text.h"

namespace weir::replay {
namespace {

using Runs = std::vector<ReportRun>;

std::string Plural(size_t count, const std::string& noun) {
  return FormatCount(static_cast<double>(count)) + " " + noun + (count == 1 ? "" : "s");
}

// Where a run's figures come from, for the label beside them.
std::string OriginOf(const ReportRun& run) {
  if (run.simulated()) return "simulated device, no GPU time";
  if (run.device.empty()) return "device not recorded";
  return "GPU (" + run.device + ")";
}

// The same for all runs together.
std::string OriginOf(const Runs& runs) {
  std::set<std::string> origins;
  for (const ReportRun& run : runs) origins.insert(OriginOf(run));
  std::string text;
  for (const std::string& origin : origins) text += (text.empty() ? "" : "; ") + origin;
  return text;
}

std::string Label(const std::string& origin) {
  return "<span class=\"label\">" + EscapeHtml(origin) + "</span>";
}

std::string Bar(const char* css_class, const std::string& name, double ratio, double widest) {
  return HtmlBar(css_class, name, ratio, widest, FormatRatio(ratio));
}

std::string MeansWithBaselines(const Runs& runs) {
  Runs compared;
  for (const ReportRun& run : runs) {
    if (run.counts() && run.native_ratio && run.expandable_ratio) compared.push_back(run);
  }
  const auto weir = GeometricMean(compared, &ReportRun::ratio);
  const auto native = GeometricMean(compared, &ReportRun::native_ratio);
  const auto expandable = GeometricMean(compared, &ReportRun::expandable_ratio);
  if (!weir || !native || !expandable) return "";
  const double widest = std::max({*weir, *native, *expandable});
  return "<p>Against PyTorch's own allocators, on the " + Plural(compared.size(), "trace") +
         " for which their figures are known (geometric mean of peak reserved ÷ peak requested; "
         "lower is better, 1 is perfect):</p><dl class=\"bars\">" +
         Bar("weir", "Weir", *weir, widest) +
         Bar("peer", "PyTorch, expandable segments", *expandable, widest) +
         Bar("peer", "PyTorch, native", *native, widest) + "</dl>";
}

std::string Headline(const Runs& runs) {
  size_t completed = 0, counted = 0;
  const ReportRun* worst = nullptr;
  for (const ReportRun& run : runs) {
    completed += run.completed ? 1 : 0;
    if (!run.counts()) continue;
    ++counted;
    if (worst == nullptr || *run.ratio > *worst->ratio) worst = &run;
  }
  std::string html = "<div class=\"headline\">";
  if (const auto mean = GeometricMean(runs, &ReportRun::ratio)) {
    html += "<p class=\"figure\">At its peak Weir held <strong>" + FormatRatio(mean) +
            "&nbsp;×</strong> the memory that the programs asked for (geometric mean of " +
            Plural(counted, "trace") + "; worst " + FormatRatio(worst->ratio) + ", " +
            EscapeHtml(worst->name) + ").</p>";
  }
  html += MeansWithBaselines(runs);
  html += completed == runs.size()
              ? "<p>" + Plural(runs.size(), "run") + ", all completed.</p>"
              : "<p class=\"bad\">" + Plural(runs.size() - completed, "run") + " of " +
                    FormatCount(static_cast<double>(runs.size())) + " did not complete.</p>";
  return html + Label(OriginOf(runs)) + "</div>";
}

std::string Cell(const std::string& text) { return "<td>" + text + "</td>"; }

std::string OutcomeCell(const ReportRun& run) {
  if (run.completed) return "<td class=\"text\">yes</td>";
  return "<td class=\"failure bad\">no: " + EscapeHtml(run.failure) + "</td>";
}

// Columns that would say the same in every row are left out.
struct Columns {
  bool allocator, pass, checker;
  explicit Columns(const Runs& runs) {
    std::set<std::string> allocators;
    for (const ReportRun& run : runs) allocators.insert(run.allocator);
    allocator = allocators.size() > 1;
    pass = std::any_of(runs.begin(), runs.end(), [](const auto& r) { return r.pass > 1; });
    checker = std::any_of(runs.begin(), runs.end(),
                          [](const auto& r) { return r.checker_reports.has_value(); });
  }
};

std::string TableHead(const Columns& columns) {
  std::string html = "<thead><tr><th scope=\"col\">Trace</th>";
  const auto add = [&](const char* name) {
    html += std::string("<th scope=\"col\">") + name + "</th>";
  };
  if (columns.allocator) add("Allocator");
  if (columns.pass) add("Pass");
  for (const char* name :
       {"Allo&shy;cations", "Peak requested", "Peak reserved", "Ratio", "PyTorch native ratio",
        "PyTorch expandable ratio", "Driver calls", "Driver time, modelled",
        "of it in the second half", "CPU per operation"}) {
    add(name);
  }
  if (columns.checker) add("Checker reports");
  return html + "<th scope=\"col\" class=\"text\">Completed</th></tr></thead>";
}

std::string TableRow(const ReportRun& run, size_t index, const Columns& columns) {
  std::string html = "<tr><th scope=\"row\"><a href=\"#run-" + std::to_string(index) + "\">" +
                     EscapeHtml(run.name) + "</a></th>";
  if (columns.allocator) html += "<td class=\"text\">" + EscapeHtml(run.allocator) + "</td>";
  if (columns.pass) html += Cell(std::to_string(run.pass));
  html += Cell(FormatCount(run.allocations)) + Cell(FormatBytes(run.peak_requested)) +
          Cell(FormatBytes(run.peak_reserved)) +
          Cell("<strong>" + FormatRatio(run.ratio) + "</strong>") +
          Cell(FormatRatio(run.native_ratio)) + Cell(FormatRatio(run.expandable_ratio)) +
          Cell(FormatCount(run.driver_calls)) + Cell(FormatMicroseconds(run.driver_time_us)) +
          Cell(FormatMicroseconds(run.steady_driver_time_us)) +
          Cell(FormatNanoseconds(run.ns_per_op));
  if (columns.checker) {
    const bool bad = run.checker_reports.value_or(0) > 0;
    html += (bad ? "<td class=\"bad\">" : "<td>") + FormatCount(run.checker_reports) + "</td>";
  }
  return html + OutcomeCell(run) + "</tr>\n";
}

std::string Table(const Runs& runs) {
  const Columns columns(runs);
  std::string html =
      "<h2 id=\"traces\">Traces</h2><p class=\"quiet\">" + Label(OriginOf(runs)) +
      " Ratio: peak reserved ÷ peak requested. Driver time is the number of driver calls times "
      "assumed costs; CPU time is the allocator's own on the machine that ran the replay. "
      "PyTorch's ratios were measured with its allocators on the recorded programs. "
      "Traces whose peak is below 64 MiB are a few granules of 2 MiB and are in no mean.</p>"
      "<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-labelledby=\"traces\"><table>" +
      TableHead(columns) + "<tbody>\n";
  for (size_t i = 0; i < runs.size(); ++i) html += TableRow(runs[i], i, columns);
  return html + "</tbody></table></div>";
}

std::string DriverCalls(const ReportRun& run) {
  if (run.calls_by_kind.empty()) return "";
  std::string html = "<details><summary>Driver calls by kind</summary><p class=\"quiet\">";
  bool first = true;
  for (const auto& [kind, count] : run.calls_by_kind) {
    html += (first ? "" : ", ") + EscapeHtml(kind) + " " + FormatCount(count);
    first = false;
  }
  return html + "</p></details>";
}

std::string Timeline(const ReportRun& run) {
  const std::string chart = RenderChart(
      run.timeline, run.name +
                        ": requested and reserved bytes over the trace's events. "
                        "Peak requested " +
                        FormatBytes(run.peak_requested) + ", peak reserved " +
                        FormatBytes(run.peak_reserved) + ". Arrow keys read the values.");
  if (chart.empty()) return "<p class=\"quiet\">No timeline was recorded.</p>";
  return "<figure>" + chart +
         "<div class=\"legend\"><span><span class=\"key requested\"></span>requested bytes</span>"
         "<span><span class=\"key reserved\"></span>reserved bytes</span>"
         "<output aria-live=\"polite\"></output></div><figcaption>" +
         Label(OriginOf(run)) + "</figcaption></figure>";
}

std::string RunSection(const ReportRun& run, size_t index, const Columns& columns) {
  std::string html = "<section class=\"trace\" id=\"run-" + std::to_string(index) + "\"><h3>" +
                     EscapeHtml(run.name);
  if (columns.allocator) html += ", " + EscapeHtml(run.allocator);
  if (columns.pass) html += ", pass " + std::to_string(run.pass);
  html += "</h3>";
  if (!run.what.empty()) html += "<p class=\"quiet\">" + EscapeHtml(run.what) + "</p>";
  if (!run.completed) html += "<p class=\"bad\">" + EscapeHtml(run.failure) + "</p>";
  html += "<p>Peak requested " + FormatBytes(run.peak_requested) + ", peak reserved " +
          FormatBytes(run.peak_reserved) + " (ratio " + FormatRatio(run.ratio) +
          "), on a device of " + FormatBytes(run.memory_bytes) + ".</p>";
  for (const std::string& note : run.notes) {
    html += "<p class=\"quiet\">" + EscapeHtml(note) + "</p>";
  }
  return html + Timeline(run) + DriverCalls(run) + "</section>\n";
}

}  // namespace

std::string RenderReport(const nlohmann::json& replay_result, const nlohmann::json& baselines) {
  const Runs runs = ReadRuns(replay_result, baselines);
  std::string html =
      "<p>Recorded allocations of real programs, replayed through Weir's device pool.</p>";
  if (runs.empty()) {
    html += "<p class=\"bad\">The result holds no runs.</p>";
  } else {
    const Columns columns(runs);
    html += Headline(runs) + Table(runs) + "<h2>Memory over each trace</h2>\n";
    for (size_t i = 0; i < runs.size(); ++i) html += RunSection(runs[i], i, columns);
  }
  return HtmlPage("Weir replay report", html);
}

}  // namespace weir::replay
