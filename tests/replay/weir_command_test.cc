// The weir command as a user runs it: output, files, exit status.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/support/catch.h"

namespace weir::replay {
namespace {

using nlohmann::json;

const std::string kHeader = "t_us,op,id,size,stream,device\n";
// 3 MiB and 5 MiB live together at most; the second block stays live.
const std::string kSmall =
    kHeader + "1,a,1,3145728,0,0\n2,a,2,5242880,0,0\n3,f,1,0,0,0\n4,a,3,1000,0,0\n5,f,3,0,0,0\n";
// Blocks of one stream that another uses, and that another frees.
const std::string kStreams = kHeader +
                             "1,a,1,4194304,0,0\n2,u,1,0,7,0\n3,f,1,0,0,0\n4,a,2,4194304,0,0\n"
                             "5,a,3,4194304,7,0\n6,f,2,0,7,0\n7,a,4,4194304,7,0\n8,f,3,0,7,0\n"
                             "9,f,4,0,0,0\n";

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/weir-command-XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string Path(const std::string& name) const { return path_ + "/" + name; }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name)) << text;
    return Path(name);
  }
  std::string Read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(Path(name)).rdbuf();
    return text.str();
  }

 private:
  std::string path_;
};

struct Outcome {
  int status = -1;
  std::string text;  // stdout and stderr

  bool Says(const std::string& part) const { return text.find(part) != std::string::npos; }
};

Outcome Shell(const std::string& command) {
  Outcome outcome;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  char piece[4096];
  while (const size_t got = fread(piece, 1, sizeof(piece), pipe)) outcome.text.append(piece, got);
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

Outcome Weir(const std::string& arguments) { return Shell(WEIR_COMMAND " " + arguments); }

json Replay(const Folder& folder, const std::string& arguments, int status = 0) {
  const Outcome outcome = Weir("replay --json " + folder.Path("out.json") + " " + arguments);
  INFO(outcome.text);
  REQUIRE(outcome.status == status);
  return json::parse(folder.Read("out.json"));
}

TEST_CASE("a replay's JSON has one run per pass with every key of weir-replay/1", "[replay]") {
  const Folder folder;
  const json result = Replay(folder, "--repeat 2 " + folder.Write("small.csv", kSmall));
  CHECK(result["schema"] == "weir-replay/1");
  REQUIRE(result["runs"].size() == 2);
  for (const json& run : result["runs"]) {
    for (const char* key :
         {"trace", "allocator", "device", "pass", "memory_bytes", "allocations",
          "peak_requested_bytes", "peak_reserved_bytes", "ratio", "driver_calls", "driver_time_us",
          "steady_driver_time_us", "ns_per_op", "completed", "failed_event", "checker_reports"}) {
      INFO(key);
      CHECK(run.contains(key));
    }
    CHECK(run["trace"] == "small");
    CHECK(run["device"] == "sim");
    CHECK(run["memory_bytes"] == uint64_t{80} << 30);
    CHECK(run["allocations"] == 3);
    CHECK(run["peak_requested_bytes"] == 8 << 20);
    CHECK(run["peak_reserved_bytes"] >= 8 << 20);
    CHECK(run["ratio"] == run["peak_reserved_bytes"].get<double>() / (8 << 20));
    CHECK(run["completed"] == true);
    CHECK(run["failed_event"].is_null());
    CHECK(run["checker_reports"] == 0);
    CHECK(run["ns_per_op"] > 0);
    CHECK(!run.contains("timeline"));
  }
  const json &first = result["runs"][0], &second = result["runs"][1];
  CHECK(first["pass"] == 1);
  CHECK(second["pass"] == 2);
  CHECK(first["driver_calls"]["cuMemCreate"] >= 4);
  CHECK(first["driver_time_us"] > 0);
  CHECK(!second["driver_calls"].contains("cuMemCreate"));
}

TEST_CASE("a trace that does not fit fails with the event's number and the allocator's words",
          "[replay]") {
  const Folder folder;
  const std::string trace = folder.Write("small.csv", kSmall);
  const json run = Replay(folder, "--memory 6MiB " + trace, 1)["runs"][0];
  CHECK(run["completed"] == false);
  CHECK(run["failed_event"] == 1);
  CHECK(run["memory_bytes"] == 6 << 20);
  CHECK(!run["error"].get<std::string>().empty());
  const Outcome outcome = Weir("replay --memory 6MiB " + trace);
  CHECK(outcome.Says("FAILED at event 1: weir_malloc_async_device: "));
}

TEST_CASE("verification of uses and frees on other streams finds nothing wrong", "[replay]") {
  const Folder folder;
  const std::string trace = folder.Write("streams.csv", kStreams);
  for (const char* mode : {"keep", "one"}) {
    const json result =
        Replay(folder, "--verify --repeat 3 --streams " + std::string(mode) + " " + trace);
    REQUIRE(result["runs"].size() == 3);
    CHECK(result["runs"][2]["checker_reports"] == 0);
    CHECK(result["runs"][2]["verified"] == true);
    CHECK(result["runs"][0]["uses"] == 1);
  }
  CHECK(Weir("replay --verify " + trace).Says("verified: every block kept what was written"));
}

TEST_CASE("verification adds nothing to the driver calls that are counted", "[replay]") {
  const Folder folder;
  const std::string trace = folder.Write("small.csv", kSmall);
  const json plain = Replay(folder, trace)["runs"][0];
  const json verified = Replay(folder, "--verify " + trace)["runs"][0];
  CHECK(plain["driver_calls"] == verified["driver_calls"]);
  CHECK(plain["driver_time_us"] == verified["driver_time_us"]);
}

TEST_CASE("several devices are simulated when the trace has them", "[replay]") {
  const Folder folder;
  const json run = Replay(
      folder,
      "--verify " +
          folder.Write(
              "two.csv",
              kHeader +
                  "1,a,1,3145728,0,5\n2,a,2,5242880,9,2\n3,f,1,0,0,5\n4,f,2,0,9,2\n"))["runs"][0];
  CHECK(run["devices"] == 2);
  CHECK(run["peak_requested_bytes"] == 8 << 20);
}

TEST_CASE("a timeline has the peaks, and the report is one page", "[replay]") {
  const Folder folder;
  const std::string trace = folder.Write("small.csv", kSmall);
  const json run =
      Replay(folder, "--report " + folder.Path("report.html") + " " + trace)["runs"][0];
  REQUIRE(!run["timeline"].empty());
  uint64_t requested = 0, reserved = 0;
  for (const json& point : run["timeline"]) {
    requested = std::max(requested, point["requested_bytes"].get<uint64_t>());
    reserved = std::max(reserved, point["reserved_bytes"].get<uint64_t>());
  }
  CHECK(requested == run["peak_requested_bytes"]);
  CHECK(reserved == run["peak_reserved_bytes"]);
  CHECK(folder.Read("report.html").find("</html>") != std::string::npos);
}

TEST_CASE("several traces end in a table, one at a time or two", "[replay]") {
  const Folder folder;
  const std::string traces = folder.Write("a.csv", kSmall) + " " + folder.Write("b.csv", kStreams);
  for (const char* jobs : {"1", "2"}) {
    const Outcome outcome = Weir("replay --jobs " + std::string(jobs) + " " + traces);
    INFO(outcome.text);
    CHECK(outcome.status == 0);
    CHECK(outcome.Says("geometric mean of 2"));
    CHECK(outcome.Says("worst ("));
    CHECK(outcome.text.find('\r') == std::string::npos);  // no progress bar outside a terminal
  }
}

TEST_CASE("a bad trace is one line and the others are replayed", "[replay]") {
  const Folder folder;
  const std::string bad = folder.Write("bad.csv", kHeader + "1,f,1,0,0,0\n");
  const Outcome outcome = Weir("replay " + bad + " " + folder.Write("small.csv", kSmall));
  INFO(outcome.text);
  CHECK(outcome.status == 2);
  CHECK(outcome.Says("weir: " + bad + ": line 2: free of block 1, which is not live\n"));
  CHECK(outcome.Says("small, pass 1, on sim"));
}

TEST_CASE("a replay whose process dies is reported with the signal and the event", "[replay]") {
  const Folder folder;
  const Outcome outcome = Shell("ulimit -t 1; " WEIR_COMMAND " replay --repeat 1000000 --json " +
                                folder.Path("out.json") + " " + folder.Write("small.csv", kSmall));
  INFO(outcome.text);
  CHECK(outcome.status == 1);
  CHECK(outcome.Says("the replay died of signal"));
  const json run = json::parse(folder.Read("out.json"))["runs"][0];
  CHECK(run["completed"] == false);
  CHECK(run["failed_event"].is_number());
  CHECK(run["pass"] > 1);
}

TEST_CASE("a wrong WEIR_CONF is told in the allocator's words", "[replay]") {
  const Folder folder;
  const Outcome outcome =
      Shell("WEIR_CONF=nonsense:1 " WEIR_COMMAND " replay " + folder.Write("small.csv", kSmall));
  INFO(outcome.text);
  CHECK(outcome.status == 1);
  CHECK(outcome.Says("nonsense"));
}

TEST_CASE("converting keeps what info tells, and bad input writes nothing", "[replay]") {
  const Folder folder;
  const std::string from = folder.Write("streams.csv", kStreams);
  const std::string to = folder.Path("streams.weirtrace");
  REQUIRE(Weir("trace convert " + from + " " + to).status == 0);
  const Outcome before = Weir("trace info " + from), after = Weir("trace info " + to);
  CHECK(before.status == 0);
  CHECK(before.Says("4 allocations, 4 frees, 1 uses on other streams, 0 live at the end"));
  CHECK(before.text == after.text);
  const Outcome bad = Weir("trace convert " + folder.Write("bad.csv", kHeader + "x\n") + " " +
                           folder.Path("bad.weirtrace"));
  CHECK(bad.status == 2);
  CHECK(bad.Says("line 2: 1 fields instead of 6"));
  CHECK(!std::filesystem::exists(folder.Path("bad.weirtrace")));
}

TEST_CASE("wrong options exit with 2 and say what is wrong", "[replay]") {
  const Folder folder;
  const std::string trace = folder.Write("small.csv", kSmall);
  CHECK(Weir("").status == 2);
  CHECK(Weir("replay").status == 2);
  CHECK(Weir("replay --memory much " + trace).status == 2);
  CHECK(Weir("replay --memory 1MiB " + trace).Says("2MiB to 64TiB"));
  CHECK(Weir("replay --memory 9000000TiB " + trace).status == 2);
  CHECK(Weir("replay --streams two " + trace).status == 2);
  CHECK(Weir("replay --repeat 0 " + trace).status == 2);
  CHECK(Weir("replay --device gpu " + trace).Says("the device is neither sim nor a number"));
  CHECK(Weir("replay --device 0 --verify " + trace).Says("--verify needs the simulated device"));
  CHECK(Weir("replay --json /nonexistent/x " + trace).status == 2);
  CHECK(Weir("--help").status == 0);
}

TEST_CASE("a recorded program with two streams replays clean", "[replay]") {
  const Folder folder;
  const json run =
      Replay(folder, "--verify " WEIR_BENCH_TRACES "/fsdp_streams.weirtrace")["runs"][0];
  CHECK(run["completed"] == true);
  CHECK(run["checker_reports"] == 0);
  CHECK(run["allocations"] == 1769);
}

}  // namespace
}  // namespace weir::replay
