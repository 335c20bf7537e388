#include "tools/replay/fit_print.h"

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "tools/replay/text.h"

namespace weir::replay {
namespace {

std::string Bytes(double bytes) { return Mebibytes(static_cast<uint64_t>(bytes)); }

std::string Milliseconds(const FitPassFigures& pass) {
  return pass.completed && pass.time_us ? Fixed(*pass.time_us / 1e3, 3) : "-";
}

std::string Calls(const FitPassFigures& pass) {
  return pass.completed && pass.calls ? WithCommas(static_cast<uint64_t>(*pass.calls)) : "-";
}

std::string Share(uint64_t part, uint64_t of) { return absl::StrCat(part, " of ", of); }

std::string Mean(const FitMean& mean, double us) {
  return mean.runs > 0 ? Fixed(us / 1e3, 3) : "-";
}

void PrintTraces(const FitGroup& group) {
  std::printf("\n%-26s %14s %14s %8s  driver ms, fifth pass, at\n%65s", group.allocator.c_str(),
              "requested", "fits in", "ratio", "");
  for (const auto& capacity : group.capacities) std::printf(" %10s", capacity.name.c_str());
  std::printf("\n");
  for (const FitRun* run : group.runs) {
    std::printf("%-26s %14s %14s %8s", run->trace.c_str(), Bytes(run->peak_bytes).c_str(),
                run->fits_in_bytes ? Bytes(*run->fits_in_bytes).c_str() : "-",
                run->ratio ? Fixed(*run->ratio, 4).c_str() : "-");
    for (const FitCapacity& point : run->curve) {
      std::printf(" %10s", Milliseconds(point.fifth).c_str());
    }
    std::printf("%s\n", run->counts() ? "" : "  (a few granules: in no mean)");
  }
}

void PrintGroup(const FitGroup& group) {
  PrintTraces(group);
  if (group.counted == 0) return;
  const std::string fitted = Share(group.fitted, group.counted);
  if (group.fitted > 0) {
    std::printf("fits in: %s geometric mean of %s, %s worst (%s)\n",
                Fixed(group.geometric_mean, 4).c_str(), fitted.c_str(),
                Fixed(group.worst, 4).c_str(), group.worst_trace.c_str());
  } else {
    std::printf("fits in: %s\n", fitted.c_str());
  }
  std::printf("%-10s %10s %10s %10s %12s %10s %10s %14s\n", "device", "complete", "ms mean",
              "worst", "5th complete", "ms mean", "worst", "without a call");
  for (const auto& capacity : group.capacities) {
    const FitMean &first = capacity.first, &fifth = capacity.fifth;
    std::printf("%-10s %10s %10s %10s %12s %10s %10s %14s%s\n", capacity.name.c_str(),
                Share(first.runs, group.counted).c_str(), Mean(first, first.mean_us).c_str(),
                Mean(first, first.worst_us).c_str(), Share(fifth.runs, group.counted).c_str(),
                Mean(fifth, fifth.mean_us).c_str(), Mean(fifth, fifth.worst_us).c_str(),
                Share(fifth.without_calls, group.counted).c_str(),
                fifth.runs > 0 ? absl::StrCat("  (", fifth.worst_trace, ")").c_str() : "");
  }
}

}  // namespace

void PrintFit(const FitRun& run) {
  std::printf("%s, %s: peak requested %s", run.trace.c_str(), run.allocator.c_str(),
              Bytes(run.peak_bytes).c_str());
  if (run.fits_in_bytes) {
    std::printf(", fits in %s (%s)\n", Bytes(*run.fits_in_bytes).c_str(),
                Fixed(run.ratio.value_or(0), 4).c_str());
  } else {
    std::printf("\n  FAILED: %s\n", run.error.c_str());
  }
  if (!run.curve.empty()) {
    std::printf("  %-10s %15s %12s %12s %12s %12s\n", "device", "", "calls", "driver ms",
                "5th calls", "driver ms");
  }
  for (const FitCapacity& point : run.curve) {
    std::printf("  %-10s %15s", point.name.c_str(), Bytes(point.bytes).c_str());
    if (point.first.completed) {
      std::printf(" %12s %12s %12s %12s", Calls(point.first).c_str(),
                  Milliseconds(point.first).c_str(), Calls(point.fifth).c_str(),
                  Milliseconds(point.fifth).c_str());
    }
    // The allocator's words, which are long, are in the JSON.
    const std::string where = point.error.substr(0, point.error.find(':'));
    std::printf("%s%s\n", where.empty() ? "" : "  did not complete: ", where.c_str());
  }
  std::fflush(stdout);
}

void PrintFitSummary(const std::vector<FitRun>& runs) {
  for (const FitGroup& group : GroupFits(runs)) PrintGroup(group);
}

}  // namespace weir::replay
