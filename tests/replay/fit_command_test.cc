// `weir fit` as a user runs it.
#include <nlohmann/json.hpp>
#include <string>

#include "tests/replay/command_fixture.h"
#include "tests/support/catch.h"

namespace weir::replay {
namespace {

using nlohmann::json;

constexpr uint64_t kMiB = uint64_t{1} << 20;

// 8 MiB live at most; with its holes no allocator that does not move memory needs less than 8 MiB,
// and one that maps free granules anywhere needs no more.
const std::string kHoles = kHeader +
                           "1,a,1,2097152,0,0\n2,a,2,2097152,0,0\n3,a,3,2097152,0,0\n"
                           "4,a,4,2097152,0,0\n5,f,1,0,0,0\n6,f,3,0,0,0\n7,a,5,4194304,0,0\n"
                           "8,f,2,0,0,0\n9,f,4,0,0,0\n10,f,5,0,0,0\n";

json Fit(const Folder& folder, const std::string& arguments, int status = 0) {
  return WeirJson(folder, "fit", arguments, status);
}

TEST_CASE("a fit finds the known minimum of a small trace", "[fit]") {
  const Folder folder;
  const json runs = Fit(folder, folder.Write("holes.csv", kHoles))["runs"];
  CHECK(runs[0]["peak_requested_bytes"] == 8 * kMiB);
  CHECK(runs[0]["fits_in_bytes"] == 8 * kMiB);
  // Scaled, the same trace needs as much more.
  const json scaled = Fit(folder, "--scale 100 " + folder.Path("holes.csv"))["runs"][0];
  CHECK(scaled["peak_requested_bytes"] == 800 * kMiB);
  CHECK(scaled["fits_in_bytes"] == 800 * kMiB);
  CHECK(scaled["scale"] == 100);
}

TEST_CASE("what fits is what completes, and one step less does not", "[fit]") {
  const Folder folder;
  const std::string trace = WEIR_BENCH_TRACES "/lm_200_mixed_precision.weirtrace";
  const std::string other = WEIR_BENCH_TRACES "/resnet50_offline.weirtrace";
  for (const std::string& path : {trace, other}) {
    if (!std::filesystem::exists(path)) continue;
    const json run = Fit(folder, path)["runs"][0];
    const uint64_t fits = run["fits_in_bytes"], step = run["resolution_bytes"];
    CHECK(step == 2 * kMiB);
    CHECK(Weir("replay --memory " + std::to_string(fits) + " " + path).status == 0);
    CHECK(Weir("replay --memory " + std::to_string(fits - step) + " " + path).status == 1);
  }
}

TEST_CASE("a fit's JSON has every key of weir-fit/1", "[fit]") {
  const Folder folder;
  const json result = Fit(
      folder, "--jobs 2 " + folder.Write("a.csv", kHoles) + " " + folder.Write("b.csv", kSmall));
  CHECK(result["schema"] == "weir-fit/1");
  REQUIRE(result["runs"].size() == 2);
  CHECK(result["runs"][0]["trace"] == "a");
  CHECK(result["runs"][1]["trace"] == "b");
  for (const json& run : result["runs"]) {
    CHECK(run["allocator"] == "weir");
    CHECK(run["fits_in_ratio"] ==
          run["fits_in_bytes"].get<double>() / run["peak_requested_bytes"].get<double>());
    REQUIRE(run["curve"].size() == 12);
    for (const json& point : run["curve"]) {
      for (const char* key : {"capacity_bytes", "pass", "completed", "driver_calls",
                              "driver_time_us", "factor", "waits", "peak_reserved_bytes"}) {
        INFO(key);
        CHECK(point.contains(key));
      }
      CHECK((point["pass"] == 1 || point["pass"] == 5));
    }
    const json& last = run["curve"][11];
    CHECK(last["capacity_bytes"] == uint64_t{80} << 30);
    CHECK(last["factor"].is_null());
    CHECK(last["pass"] == 5);
    CHECK(last["completed"] == true);
    CHECK(last["driver_calls"] == 0);
    CHECK(run["curve"][10]["driver_calls"] > 4);
    CHECK(run["curve"][10]["driver_time_us"] > 0);
  }
}

TEST_CASE("a trace that no device can hold fails, the others are fitted", "[fit]") {
  const Folder folder;
  const std::string huge =
      folder.Write("huge.csv", kHeader + "1,a,1,70368744177664,0,0\n2,f,1,0,0,0\n");
  const Outcome outcome =
      Weir("fit --report " + folder.Path("fit.html") + " --json " + folder.Path("fit.json") + " " +
           huge + " " + folder.Write("holes.csv", kHoles));
  INFO(outcome.text);
  CHECK(outcome.status == 1);
  CHECK(outcome.Says("FAILED: the trace needs more than the largest simulated device"));
  const json runs = json::parse(folder.Read("fit.json"))["runs"];
  CHECK(runs[0]["fits_in_bytes"].is_null());
  CHECK(!runs[0]["error"].get<std::string>().empty());
  CHECK(runs[1]["fits_in_bytes"] == 8 * kMiB);
  CHECK(folder.Read("fit.html").find("more than the largest") != std::string::npos);
}

TEST_CASE("options reach the allocator, and each set of them is a run", "[fit]") {
  const Folder folder;
  const std::string trace = folder.Write("holes.csv", kHoles);
  const json runs = Fit(folder, "--options soft_limit:0.05 --options vmm:off " + trace)["runs"];
  REQUIRE(runs.size() == 2);
  CHECK(runs[0]["options"] == "soft_limit:0.05");
  CHECK(runs[0]["fits_in_bytes"] == 8 * kMiB);
  CHECK(runs[1]["options"] == "vmm:off");
  CHECK(runs[1]["curve"][10]["driver_calls"] != runs[0]["curve"][10]["driver_calls"]);
  // The search's device is not theirs to choose.
  CHECK(Fit(folder, "--options sim_memory:4MiB " + trace)["runs"][0]["fits_in_bytes"] == 8 * kMiB);
  const Outcome wrong = Weir("fit --options nonsense:1 " + trace);
  CHECK(wrong.status == 2);
  CHECK(wrong.Says("weir: --options: weir_configure: unknown option 'nonsense'"));
}

TEST_CASE("bad input and wrong options exit with 2 and say what is wrong", "[fit]") {
  const Folder folder;
  const std::string bad = folder.Write("bad.csv", kHeader + "1,f,1,0,0,0\n");
  const Outcome outcome = Weir("fit " + bad + " " + folder.Write("holes.csv", kHoles));
  INFO(outcome.text);
  CHECK(outcome.status == 2);
  CHECK(outcome.Says("line 2: free of block 1, which is not live"));
  CHECK(outcome.Says("holes, weir: peak requested 8.0 MiB, fits in 8.0 MiB (1.0000)"));
  CHECK(Weir("fit").status == 2);
  CHECK(Weir("fit " + folder.Write("none.csv", kHeader + "1,a,1,0,0,0\n2,f,1,0,0,0\n"))
            .Says("the trace allocates nothing"));
  CHECK(Weir("fit --scale 0 " + bad).status == 2);
  CHECK(Weir("fit --json /nonexistent/x " + folder.Path("holes.csv")).status == 2);
  CHECK(Weir("fit --allocator jemalloc " + bad).Says("there are weir, torch, "));
}

TEST_CASE("an allocator whose program is not built asks for bench/run", "[fit]") {
  const Folder folder;
  // A copy of the command, beside which there is nothing.
  std::filesystem::copy_file(WEIR_COMMAND, folder.Path("weir"));
  const Outcome outcome =
      Shell(folder.Path("weir") + " fit --allocator weir,cub " + folder.Write("h.csv", kHoles));
  INFO(outcome.text);
  CHECK(outcome.status == 2);
  CHECK(outcome.Says("--allocator cub: "));
  CHECK(outcome.Says("weir_bench_cub is not built: run bench/run first"));
}

TEST_CASE("another allocator's program answers for its devices", "[fit]") {
  const Folder folder;
  std::filesystem::copy_file(WEIR_COMMAND, folder.Path("weir"));
  // Completes on 10 MiB and more.
  folder.Write("weir_bench_cuda",
               "#!/bin/sh\n"
               "while read bytes passes; do\n"
               "  done=false; [ $bytes -ge 10485760 ] && done=true\n"
               "  echo '{\"runs\":[{\"completed\":'$done',\"failed_event\":3,"
               "\"driver_calls\":{\"cuMemAlloc\":2,\"cuMemFree\":1},\"driver_time_us\":7}]}'\n"
               "done\n");
  std::filesystem::permissions(folder.Path("weir_bench_cuda"), std::filesystem::perms::owner_all);
  const std::string fit = folder.Path("weir") + " fit --allocator cuda --json " +
                          folder.Path("fit.json") + " " + folder.Write("h.csv", kHoles);
  const Outcome outcome = Shell(fit);
  INFO(outcome.text);
  REQUIRE(outcome.status == 0);
  const json run = json::parse(folder.Read("fit.json"))["runs"][0];
  CHECK(run["allocator"] == "cuda");
  CHECK(run["fits_in_bytes"] == 10 * kMiB);
  CHECK(run["curve"][10]["driver_calls"] == 3);

  folder.Write("weir_bench_cuda", "#!/bin/sh\nread line\n");  // ends without an answer
  const Outcome ended = Shell(fit);
  CHECK(ended.status == 1);
  CHECK(ended.Says("weir_bench_cuda ended without an answer"));
}

}  // namespace
}  // namespace weir::replay
