#include "tools/replay/fit_figures.h"

#include <algorithm>
#include <cmath>

#include "tools/replay/report_figures.h"
#include "tools/replay/text.h"

namespace weir::replay {
namespace {

using nlohmann::json;

std::optional<double> Number(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::string Text(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

bool True(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

std::string CapacityName(const json& point) {
  const std::optional<double> factor = Number(point, "factor");
  return factor ? Fixed(*factor, 2) : "unlimited";
}

void AddPoint(const json& point, FitRun* run) {
  const std::string name = CapacityName(point);
  auto found = std::find_if(run->curve.begin(), run->curve.end(),
                            [&](const FitCapacity& capacity) { return capacity.name == name; });
  if (found == run->curve.end()) {
    run->curve.push_back({name, Number(point, "capacity_bytes").value_or(0), {}, {}, ""});
    found = run->curve.end() - 1;
  }
  const FitPassFigures figures = {True(point, "completed"), Number(point, "driver_calls"),
                                  Number(point, "driver_time_us"), Number(point, "waits")};
  (Number(point, "pass").value_or(1) == 1 ? found->first : found->fifth) = figures;
  if (found->error.empty()) found->error = Text(point, "error");
}

void AddTo(const FitRun& run, const FitPassFigures& pass, FitMean* mean) {
  if (!pass.completed || !pass.time_us) return;
  ++mean->runs;
  if (pass.calls == 0) ++mean->without_calls;
  mean->mean_us += (*pass.time_us - mean->mean_us) / static_cast<double>(mean->runs);
  if (*pass.time_us > mean->worst_us || mean->runs == 1) {
    mean->worst_us = *pass.time_us;
    mean->worst_trace = run.trace;
  }
}

void AddCapacity(const FitRun& run, const FitCapacity& point, FitGroup* group) {
  auto found =
      std::find_if(group->capacities.begin(), group->capacities.end(),
                   [&](const FitGroup::Capacity& capacity) { return capacity.name == point.name; });
  if (found == group->capacities.end()) {
    group->capacities.push_back({point.name, {}, {}});
    found = group->capacities.end() - 1;
  }
  AddTo(run, point.first, &found->first);
  AddTo(run, point.fifth, &found->fifth);
}

// Adds up logarithms; GroupFits makes means of them.
void AddRun(const FitRun& run, FitGroup* group) {
  group->runs.push_back(&run);
  if (!run.counts()) return;
  ++group->counted;
  for (const FitCapacity& point : run.curve) AddCapacity(run, point, group);
  if (!run.ratio) return;
  ++group->fitted;
  group->geometric_mean += std::log(*run.ratio);
  if (*run.ratio <= group->worst) return;
  group->worst = *run.ratio;
  group->worst_trace = run.trace;
}

}  // namespace

bool FitRun::counts() const { return peak_bytes >= kLeastCountedBytes; }

std::vector<FitRun> ReadFits(const json& runs) {
  std::vector<FitRun> fits;
  if (!runs.is_array()) return fits;
  for (const json& from : runs) {
    if (!from.is_object()) continue;
    FitRun run;
    run.trace = Text(from, "trace");
    run.allocator = Text(from, "allocator");
    if (const std::string options = Text(from, "options"); !options.empty()) {
      run.allocator += " " + options;
    }
    run.peak_bytes = Number(from, "peak_requested_bytes").value_or(0);
    run.fits_in_bytes = Number(from, "fits_in_bytes");
    if (run.fits_in_bytes && run.peak_bytes > 0) run.ratio = *run.fits_in_bytes / run.peak_bytes;
    run.resolution_bytes = Number(from, "resolution_bytes").value_or(0);
    run.error = Text(from, "error");
    for (const json& point : from.value("curve", json::array())) {
      if (point.is_object()) AddPoint(point, &run);
    }
    fits.push_back(std::move(run));
  }
  return fits;
}

std::vector<FitGroup> GroupFits(const std::vector<FitRun>& runs) {
  std::vector<FitGroup> groups;
  for (const FitRun& run : runs) {
    auto found = std::find_if(groups.begin(), groups.end(), [&](const FitGroup& group) {
      return group.allocator == run.allocator;
    });
    if (found == groups.end()) {
      groups.emplace_back();
      groups.back().allocator = run.allocator;
      found = groups.end() - 1;
    }
    AddRun(run, &*found);
  }
  for (FitGroup& group : groups) {
    if (group.fitted > 0) {
      group.geometric_mean = std::exp(group.geometric_mean / static_cast<double>(group.fitted));
    }
  }
  return groups;
}

}  // namespace weir::replay
