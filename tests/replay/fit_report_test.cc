// Tests of what is made of a weir-fit/1 result: figures, and the page.
#include "tools/replay/fit_report.h"

#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/catch.h"
#include "tools/replay/fit_figures.h"

namespace weir::replay {
namespace {

using nlohmann::json;

constexpr uint64_t kGiB = uint64_t{1} << 30;

json Point(json factor, int pass, json time_us, json calls) {
  return {{"factor", factor},      {"capacity_bytes", 2 * kGiB},
          {"pass", pass},          {"completed", !calls.is_null()},
          {"driver_calls", calls}, {"driver_time_us", time_us}};
}

json Run(const std::string& trace, double ratio, uint64_t peak = kGiB) {
  return {{"trace", trace},
          {"allocator", "weir"},
          {"options", ""},
          {"peak_requested_bytes", peak},
          {"fits_in_bytes", static_cast<uint64_t>(static_cast<double>(peak) * ratio)},
          {"resolution_bytes", 2 << 20},
          {"curve",
           {Point(1.0, 1, 900.0, 70), Point(1.0, 5, nullptr, nullptr), Point(nullptr, 1, 500.0, 60),
            Point(nullptr, 5, 0.0, 0)}}};
}

TEST_CASE("a group has the means of its traces that are more than a few granules", "[fit]") {
  json slower = Run("b", 4.0);
  slower["curve"][0]["driver_time_us"] = 1100.0;
  slower["curve"][3] = Point(nullptr, 5, 30.0, 2);
  const json runs = {Run("a", 1.0), slower, Run("small", 9.0, kGiB / 32)};
  const std::vector<FitRun> fits = ReadFits(runs);
  const std::vector<FitGroup> groups = GroupFits(fits);
  REQUIRE(groups.size() == 1);
  const FitGroup& group = groups[0];
  CHECK(group.runs.size() == 3);
  CHECK(group.counted == 2);
  CHECK(group.fitted == 2);
  CHECK(group.geometric_mean == Approx(2.0));
  CHECK(group.worst == 4.0);
  CHECK(group.worst_trace == "b");
  REQUIRE(group.capacities.size() == 2);
  CHECK(group.capacities[0].name == "1.00");
  CHECK(group.capacities[0].first.runs == 2);
  CHECK(group.capacities[0].first.mean_us == Approx(1000));
  CHECK(group.capacities[0].first.worst_us == 1100);
  CHECK(group.capacities[0].fifth.runs == 0);
  CHECK(group.capacities[1].name == "unlimited");
  CHECK(group.capacities[1].fifth.runs == 2);
  CHECK(group.capacities[1].fifth.without_calls == 1);
  CHECK(group.capacities[1].fifth.mean_us == Approx(15));
  CHECK(group.capacities[1].fifth.worst_trace == "b");
}

TEST_CASE("other options and other allocators are other groups", "[fit]") {
  json tight = Run("a", 1.0), torch = Run("a", 1.1);
  tight["options"] = "mode:tight";
  torch["allocator"] = "torch";
  const std::vector<FitRun> fits = ReadFits({Run("a", 1.0), tight, torch, Run("b", 1.0)});
  const std::vector<FitGroup> groups = GroupFits(fits);
  REQUIRE(groups.size() == 3);
  CHECK(groups[0].allocator == "weir");
  CHECK(groups[0].runs.size() == 2);
  CHECK(groups[1].allocator == "weir mode:tight");
  CHECK(groups[2].allocator == "torch");
}

TEST_CASE("the page names figures, devices that are too small and errors, and escapes", "[fit]") {
  json bad = Run("<b>", 1.0);
  bad["fits_in_bytes"] = nullptr;
  bad["error"] = "<script>x";
  json small = Run("c", 1.0123);
  small["curve"][0] = Point(1.0, 1, nullptr, nullptr);
  small["curve"][0]["error"] = "event 7: <i>";
  const std::string page = RenderFitReport(ReadFits({bad, small}));
  const auto says = [&](const std::string& part) { return page.find(part) != std::string::npos; };
  CHECK(says("1.0123"));
  CHECK(says("too small"));
  CHECK(says("500 µs / 0 µs"));
  CHECK(says("&lt;script&gt;x"));
  CHECK(says("event 7: &lt;i&gt;"));
  CHECK(!says("<script>x"));
  CHECK(!says("<b>,"));
  CHECK(says("</html>"));
  CHECK(says("default-src 'none'"));
}

TEST_CASE("results of another shape are shown as far as they go", "[fit]") {
  for (const json& runs : {json(), json(3), json::array({1, "x"}), json::array({json::object()}),
                           json::array({{{"curve", {1, {{"pass", "x"}}}}, {"trace", 5}}})}) {
    INFO(runs.dump());
    CHECK(RenderFitReport(ReadFits(runs)).find("</html>") != std::string::npos);
  }
}

}  // namespace
}  // namespace weir::replay
