// The weir command as a user runs it: output, files, exit status.
#include "tests/replay/command_fixture.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/catch.h"

namespace weir::replay {
namespace {

using nlohmann::json;

json Replay(const Folder& folder, const std::string& arguments, int status = 0) {
  return WeirJson(folder, "replay", arguments, status);
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

TEST_CASE("presets keep the contents of a trace on a device 2 % larger than its peak", "[replay]") {
  const Folder folder;
  for (const std::string name : {"resnet50_offline", "fsdp_streams"}) {
    const std::string trace = " " WEIR_BENCH_TRACES "/" + name + ".weirtrace";
    const uint64_t peak = Replay(folder, trace)["runs"][0]["peak_requested_bytes"];
    for (const std::string mode : {"tight", "serving"}) {
      INFO(name << ", mode:" << mode);
      const Outcome outcome = Shell(
          "WEIR_CONF=mode:" + mode + " " WEIR_COMMAND " replay --verify --repeat 2 --memory " +
          std::to_string(peak / 100 * 102) + " --json " + folder.Path("out.json") + trace);
      INFO(outcome.text);
      REQUIRE(outcome.status == 0);
      const json runs = json::parse(folder.Read("out.json"))["runs"];
      REQUIRE(runs.size() == 2);
      for (const json& run : runs) {
        CHECK(run["completed"] == true);
        CHECK(run["verified"] == true);
        CHECK(run["checker_reports"] == 0);
      }
    }
  }
}

TEST_CASE("synthetic streams and a device that lags give the same again, and verify", "[replay]") {
  const Folder folder;
  const std::string trace = " " WEIR_BENCH_TRACES "/resnet50_offline.weirtrace";
  for (const std::string rule : {"size", "turns"}) {
    for (const std::string lag : {"0", "100"}) {
      const std::string options = "--synthetic-streams " + rule + " --lag " + lag + trace;
      const json first = Replay(folder, "--repeat 2 " + options)["runs"];
      const json again = Replay(folder, "--repeat 2 " + options)["runs"];
      const json verified = Replay(folder, "--verify " + options)["runs"][0];
      CHECK(first[0]["streams_mode"] == rule);
      CHECK(first[0]["lag"] == std::stoi(lag));
      CHECK(first[0]["streams"] == 4);
      for (size_t pass : {0u, 1u}) {
        CHECK(first[pass]["driver_calls"] == again[pass]["driver_calls"]);
        CHECK(first[pass]["peak_reserved_bytes"] == again[pass]["peak_reserved_bytes"]);
        CHECK(first[pass]["waits"] == again[pass]["waits"]);
      }
      CHECK(verified["completed"] == true);
      CHECK(verified["checker_reports"] == 0);
    }
  }
}

TEST_CASE("a host that must wait for a device that lags does so, and its waits are counted",
          "[replay]") {
  const Folder folder;
  // 4 MiB of one stream, in use for 100 more events when another stream needs the memory.
  const std::string trace = folder.Write(
      "two.csv", kHeader + "1,a,1,4194304,5,0\n2,f,1,0,5,0\n3,a,2,4194304,6,0\n4,f,2,0,6,0\n");
  const json at_once = Replay(folder, "--memory 4MiB " + trace)["runs"][0];
  CHECK(at_once["waits"] == 0);
  const json late = Replay(folder, "--verify --memory 4MiB --lag 100 " + trace)["runs"][0];
  CHECK(late["waits"] == 1);
  CHECK(late["lag"] == 100);
  CHECK(Weir("replay --memory 4MiB --lag 100 " + trace).Says("host waits 1,"));
  const json roomy = Replay(folder, "--lag 100 " + trace)["runs"][0];
  CHECK(roomy["waits"] == 0);
  CHECK(roomy["peak_reserved_bytes"] > at_once["peak_reserved_bytes"]);
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

TEST_CASE("the command's device wins over that of WEIR_CONF", "[replay]") {
  const Folder folder;
  const std::string small = folder.Write("small.csv", kSmall);  // 8 MiB at most
  const Outcome outcome = Shell("WEIR_CONF=device:cuda,sim_memory:4MiB,sim_devices:2 " WEIR_COMMAND
                                " replay --memory 64MiB " +
                                small);
  INFO(outcome.text);
  CHECK(outcome.status == 0);
}

TEST_CASE("a wrong WEIR_CONF is told in the allocator's words, and nothing is replayed",
          "[replay]") {
  const Folder folder;
  const std::string small = folder.Write("small.csv", kSmall);
  for (const char* command : {" replay ", " fit "}) {
    const Outcome outcome =
        Shell(std::string("WEIR_CONF=nonsense:1 " WEIR_COMMAND) + command + small);
    INFO(outcome.text);
    CHECK(outcome.status == 2);
    CHECK(outcome.Says("weir: WEIR_CONF: unknown option 'nonsense'"));
    CHECK_FALSE(outcome.Says("peak requested"));
  }
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
  CHECK(Weir("replay --synthetic-streams some " + trace).status == 2);
  CHECK(Weir("replay --synthetic-streams size --streams one " + trace).status == 2);
  CHECK(Weir("replay --lag -1 " + trace).status == 2);
  CHECK(Weir("replay --device 0 --lag 5 " + trace).Says("--lag needs the simulated device"));
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
