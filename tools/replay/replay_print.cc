#include "tools/replay/replay_print.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/replay/text.h"

namespace weir::replay {
namespace {

using nlohmann::json;

double Number(const json& run, const char* key) {
  const auto found = run.find(key);
  return found != run.end() && found->is_number() ? found->get<double>() : 0;
}

bool Has(const json& run, const char* key) {
  const auto found = run.find(key);
  return found != run.end() && found->is_number();
}

uint64_t Whole(const json& run, const char* key) {
  return Has(run, key) ? run[key].get<uint64_t>() : 0;
}

// "-" for what is unknown.
std::string Decimal(const json& run, const char* key, int decimals, double factor = 1) {
  return Has(run, key) ? Fixed(Number(run, key) * factor, decimals) : "-";
}

std::string Trace(const json& run) { return run.value("trace", ""); }

std::string Failure(const json& run) {
  if (run.value("completed", false)) return "";
  const std::string at =
      Has(run, "failed_event") ? absl::StrCat(" at event ", Whole(run, "failed_event")) : "";
  return absl::StrCat("FAILED", at, ": ", run.value("error", ""));
}

// The calls, most frequent first.
std::string Calls(const json& run) {
  std::vector<std::pair<uint64_t, std::string>> calls;
  uint64_t sum = 0;
  const json by_entry = run.value("driver_calls", json::object());
  for (const auto& [entry, count] : by_entry.items()) {
    calls.emplace_back(count.get<uint64_t>(), entry);
    sum += calls.back().first;
  }
  std::sort(calls.rbegin(), calls.rend());
  std::vector<std::string> words;
  for (const auto& [count, entry] : calls) {
    words.push_back(absl::StrCat(entry, " ", WithCommas(count)));
  }
  return absl::StrCat(WithCommas(sum), words.empty() ? "" : ": ", absl::StrJoin(words, ", "));
}

void PrintRatios(const json& runs, uint64_t pass) {
  double log_sum = 0, worst = 0;
  uint64_t count = 0;
  std::string worst_trace;
  for (const json& run : runs) {
    const double ratio = Number(run, "ratio");
    if (Whole(run, "pass") != pass || !run.value("completed", false) || ratio <= 0) continue;
    log_sum += std::log(ratio);
    ++count;
    if (ratio > worst) {
      worst = ratio;
      worst_trace = Trace(run);
    }
  }
  if (count == 0) return;
  std::printf("pass %llu: ratio %s geometric mean of %llu, %s worst (%s)\n",
              static_cast<unsigned long long>(pass),
              Fixed(std::exp(log_sum / static_cast<double>(count)), 4).c_str(),
              static_cast<unsigned long long>(count), Fixed(worst, 4).c_str(), worst_trace.c_str());
}

}  // namespace

void PrintRun(const json& run) {
  std::printf("%s, pass %llu, on %s\n", Trace(run).c_str(),
              static_cast<unsigned long long>(Whole(run, "pass")), run.value("device", "").c_str());
  if (Has(run, "allocations")) {
    std::printf("  %s allocations, peak requested %s, peak reserved %s\n",
                WithCommas(Whole(run, "allocations")).c_str(),
                Mebibytes(Whole(run, "peak_requested_bytes")).c_str(),
                Mebibytes(Whole(run, "peak_reserved_bytes")).c_str());
    std::printf("  ratio %s, fragmentation %s %%, %s ns per operation\n",
                Decimal(run, "ratio", 4).c_str(), Decimal(run, "fragmentation", 2, 100).c_str(),
                Decimal(run, "ns_per_op", 0).c_str());
    std::printf("  driver time %s ms (second half %s ms), host waits %s, calls %s\n",
                Decimal(run, "driver_time_us", 2, 1e-3).c_str(),
                Decimal(run, "steady_driver_time_us", 2, 1e-3).c_str(),
                WithCommas(Whole(run, "waits")).c_str(), Calls(run).c_str());
  }
  for (const json& note : run.value("notes", json::array())) {
    std::printf("  note: %s\n", note.get<std::string>().c_str());
  }
  if (run.value("verified", false) && run.value("completed", false)) {
    std::printf("  verified: every block kept what was written, %llu reports of the checker\n",
                static_cast<unsigned long long>(Whole(run, "checker_reports")));
  }
  if (const std::string failure = Failure(run); !failure.empty()) {
    std::printf("  %s\n", failure.c_str());
  }
  std::fflush(stdout);
}

void PrintSummary(const json& runs) {
  std::printf("\n%-26s %4s %11s %14s %14s %7s %10s %10s %8s\n", "trace", "pass", "allocations",
              "requested", "reserved", "ratio", "driver ms", "2nd half", "ns/op");
  uint64_t last_pass = 1, failed = 0;
  for (const json& run : runs) {
    const bool completed = run.value("completed", false);
    failed += completed ? 0 : 1;
    last_pass = std::max(last_pass, Whole(run, "pass"));
    std::printf("%-26s %4llu %11s %14s %14s %7s %10s %10s %8s%s\n", Trace(run).c_str(),
                static_cast<unsigned long long>(Whole(run, "pass")),
                WithCommas(Whole(run, "allocations")).c_str(),
                Mebibytes(Whole(run, "peak_requested_bytes")).c_str(),
                Mebibytes(Whole(run, "peak_reserved_bytes")).c_str(),
                Decimal(run, "ratio", 4).c_str(), Decimal(run, "driver_time_us", 2, 1e-3).c_str(),
                Decimal(run, "steady_driver_time_us", 2, 1e-3).c_str(),
                Decimal(run, "ns_per_op", 0).c_str(), completed ? "" : "  FAILED");
  }
  PrintRatios(runs, 1);
  if (last_pass > 1) PrintRatios(runs, last_pass);
  if (failed > 0) std::printf("%llu FAILED\n", static_cast<unsigned long long>(failed));
}

}  // namespace weir::replay
