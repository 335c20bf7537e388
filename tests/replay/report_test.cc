// Tests of the replay report: what it says, that nothing from a trace becomes markup, and that it
// loads nothing.
#include "tools/replay/report.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <system_error>
#include <vector>

#include "tests/support/catch.h"
#include "tools/replay/report_chart.h"
#include "tools/replay/report_text.h"

namespace weir::replay {
namespace {

using nlohmann::json;

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// The page without its own script, style and chart data: what a trace could have put markup into.
std::string Markup(const std::string& html) {
  static const std::regex kOwn("<(script|style)[^>]*>[^<]*</(script|style)>");
  const size_t script = html.rfind("<script>");
  return std::regex_replace(html.substr(0, script), kOwn, "");
}

json Run(const std::string& trace, double ratio, double peak_requested = 1 << 30) {
  return json{{"trace", trace},
              {"allocator", "weir"},
              {"device", "sim"},
              {"pass", 1},
              {"memory_bytes", uint64_t{80} << 30},
              {"allocations", 1234567},
              {"peak_requested_bytes", peak_requested},
              {"peak_reserved_bytes", peak_requested * ratio},
              {"ratio", ratio},
              {"driver_calls", {{"cuMemCreate", 7}, {"cuMemMap", 1100}}},
              {"driver_time_us", 1240.0},
              {"steady_driver_time_us", 0.0},
              {"ns_per_op", 41.4},
              {"completed", true},
              {"failed_event", nullptr},
              {"checker_reports", 0},
              {"timeline",
               {{{"event", 0}, {"requested_bytes", 0}, {"reserved_bytes", 0}},
                {{"event", 10}, {"requested_bytes", 900}, {"reserved_bytes", 2048}},
                {{"event", 20}, {"requested_bytes", 100}, {"reserved_bytes", 2048}}}}};
}

json Result(const std::vector<json>& runs) {
  return json{{"schema", "weir-replay/1"}, {"runs", runs}};
}

TEST_CASE("the report shows each run's figures, labelled as simulated", "[report]") {
  const std::string html = RenderReport(Result({Run("a/gpt2_train.csv.gz", 1.021)}));
  for (const char* part :
       {">gpt2_train</a>", "1,234,567", "1 GiB", "1.02 GiB", "1.021", "1,107", "1.24 ms", "41 ns",
        "cuMemMap 1,100, cuMemCreate 7", "simulated device, no GPU time", "80 GiB"}) {
    INFO(part);
    CHECK(Contains(html, part));
  }
  CHECK(Count(html, "<svg class=\"chart\"") == 1);
  CHECK(Contains(html, "[[0,0,0],[10,900,2048],[20,100,2048]]"));
}

TEST_CASE("a run on a GPU is not labelled as simulated", "[report]") {
  json run = Run("t", 1.5);
  run["device"] = "cuda:0";
  const std::string html = RenderReport(Result({run}));
  CHECK(Contains(html, "GPU (cuda:0)"));
  CHECK_FALSE(Contains(html, "simulated device"));
}

TEST_CASE("the headline is the geometric mean over first passes that completed", "[report]") {
  json second_pass = Run("a", 9.0);
  second_pass["pass"] = 2;
  json failed = Run("b", 9.0);
  failed["completed"] = false;
  failed["failed_event"] = 4711;
  const json tiny = Run("c", 9.0, 1 << 20);
  const std::string html =
      RenderReport(Result({Run("a", 1.0), second_pass, failed, tiny, Run("d", 1.44)}));
  CHECK(Contains(html, "1.200&nbsp;×"));
  CHECK(Contains(html, "geometric mean of 2 traces; worst 1.440, d"));
  CHECK(Contains(html, "1 run of 5 did not complete"));
  CHECK(Contains(html, "failed at event 4,711"));
}

// A folder that holds a baselines.json, and goes with it.
class BaselinesFolder {
 public:
  explicit BaselinesFolder(const std::string& text) {
    std::string name = (std::filesystem::temp_directory_path() / "weir_report_XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
    std::ofstream(path_ / "baselines.json") << text;
  }
  ~BaselinesFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string Trace(const std::string& file) const { return (path_ / file).string(); }

 private:
  std::filesystem::path path_;
};

TEST_CASE("PyTorch's ratios come from the file beside the traces", "[report]") {
  const BaselinesFolder folder(R"({"traces": {
      "gpt2": {"what": "a model", "native_ratio": 1.25, "expandable_ratio": 1.1},
      "other": {"native_ratio": 9}}})");
  const std::string path = folder.Trace("gpt2.csv.gz");
  const json baselines = ReadBaselines({path, "/nonexistent/folder/x.csv", "gpt3.csv"});
  REQUIRE(baselines.size() == 1);
  const std::string html = RenderReport(Result({Run(path, 1.03), Run("mine", 1.5)}), baselines);
  CHECK(Contains(html, "on the 1 trace for which"));
  CHECK(Contains(html, "</i>1.030</dd>"));
  CHECK(Contains(html, "</i>1.250</dd>"));
  CHECK(Contains(html, "</i>1.100</dd>"));
  CHECK(Contains(html, "a model"));
}

TEST_CASE("a baselines file that is not JSON adds nothing", "[report]") {
  const BaselinesFolder folder("{\"traces\": [");
  CHECK(ReadBaselines({folder.Trace("gpt2.csv.gz")}).empty());
}

TEST_CASE("text from a trace never becomes markup", "[report]") {
  const std::string attack = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&\x01";
  json run = Run("x", 1.1);
  run["trace"] = "<img src=x onerror=alert(2)>\"'&";
  run["allocator"] = attack;
  run["device"] = attack;
  run["completed"] = false;
  run["error"] = attack;
  run["notes"] = {attack};
  run["driver_calls"] = {{attack, 3}};
  json other = Run("y", 1.1);
  const json baselines = {{"y", {{"what", attack}, {"native_ratio", attack}}}};
  const std::string html = RenderReport(Result({run, other}), baselines);
  CHECK_FALSE(Contains(html, "<img"));
  CHECK_FALSE(Contains(html, "<script>alert"));
  CHECK(Contains(html, "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&gt;&lt;img"));
  // Every element is one that the report makes, and none has an event handler.
  const std::string markup = Markup(html);
  static const std::regex kElement("<([a-z0-9]+)([^>]*)>");
  for (std::sregex_iterator at(markup.begin(), markup.end(), kElement), end; at != end; ++at) {
    // Names only: a quoted value may hold any text, as long as it cannot end the quotes.
    const std::string attributes =
        std::regex_replace(std::string((*at)[2]), std::regex("\"[^\"]*\""), "");
    CHECK_FALSE(std::regex_search(attributes, std::regex("\\son[a-z]+=")));
    CHECK((*at)[1] != "img");
  }
}

TEST_CASE("the report loads nothing from outside", "[report]") {
  const std::string html = RenderReport(Result({Run("a", 1.1), Run("b", 1.2)}));
  CHECK(Contains(html, "default-src 'none'"));
  for (const char* part : {"http:", "https:", " src=", "<link", "@import", "url(", "fetch("}) {
    INFO(part);
    CHECK_FALSE(Contains(html, part));
  }
}

TEST_CASE("a result of another shape is rendered and not an error", "[report]") {
  const std::vector<json> odd = {
      json(),
      json::array(),
      json{{"runs", 3}},
      json{{"runs", {nullptr, 7, "x", json::array()}}},
      Result({json{{"trace", 5}, {"ratio", "high"}, {"driver_calls", 1}, {"timeline", "none"}}}),
      Result({json{{"timeline", {1, {{"event", 1}}, json::array()}}, {"completed", 1}}})};
  for (const json& result : odd) {
    const std::string html = RenderReport(result);
    CHECK(Contains(html, "<!DOCTYPE html>"));
    CHECK(Contains(html, "</html>"));
  }
  CHECK(Contains(RenderReport(json()), "holds no runs"));
}

TEST_CASE("extreme values end in a chart, not in an endless loop", "[report]") {
  json run = Run("x", 1.1);
  run["timeline"] = {{{"event", 1e300}, {"requested_bytes", 1e308}, {"reserved_bytes", 1e308}},
                     {{"event", 1.1e300}, {"requested_bytes", -5}, {"reserved_bytes", 0}}};
  CHECK(Contains(RenderReport(Result({run})), "<svg class=\"chart\""));
}

TEST_CASE("a thinned timeline keeps every peak and the last event", "[report]") {
  std::vector<TimelinePoint> points;
  for (int i = 0; i < 100000; ++i) points.push_back({double(i), 10, 20});
  points[54321] = {54321, 777, 888};
  const auto thinned = Thin(points, 400);
  REQUIRE(thinned.size() == 400);
  CHECK(thinned.back().event == 99999);
  const auto peak = std::max_element(
      thinned.begin(), thinned.end(),
      [](const auto& a, const auto& b) { return a.requested_bytes < b.requested_bytes; });
  CHECK(peak->requested_bytes == 777);
  CHECK(peak->reserved_bytes == 888);
  CHECK(Thin({{1, 2, 3}}, 400).size() == 1);
}

TEST_CASE("a trace's name is its file name without folder and suffixes", "[report]") {
  CHECK(TraceName("a/b.c/gpt2_train.pickle.gz") == "gpt2_train");
  CHECK(TraceName("pangu_2.6B.csv.gz") == "pangu_2.6B");
  CHECK(TraceName("pangu_2.6B") == "pangu_2.6B");
  CHECK(TraceName(".hidden") == ".hidden");
  CHECK(TraceName("") == "");
}

TEST_CASE("numbers are written for people", "[report]") {
  CHECK(FormatCount(0) == "0");
  CHECK(FormatCount(999) == "999");
  CHECK(FormatCount(1000) == "1,000");
  CHECK(FormatCount(1234567) == "1,234,567");
  CHECK(FormatCount(-1) == kNoFigure);
  CHECK(FormatBytes(0) == "0 B");
  CHECK(FormatBytes(1536) == "1.50 KiB");
  CHECK(FormatBytes(uint64_t{24204} << 20) == "23.64 GiB");
  CHECK(FormatMicroseconds(0.25) == "0.25 µs");
  CHECK(FormatMicroseconds(3.05e6) == "3.05 s");
  CHECK(FormatRatio(1.0205) == "1.020");
  CHECK(FormatRatio(std::nullopt) == kNoFigure);
}

}  // namespace
}  // namespace weir::replay
