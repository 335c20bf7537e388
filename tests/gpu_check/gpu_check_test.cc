#include <set>

#include "allocator/vmm/remap_observers.h"
#include "tests/support/catch.h"
#include "tools/gpu_check/check_runner.h"
#include "tools/gpu_check/gpu.h"
#include "tools/simcuda/simcuda.h"

namespace weir::gpu_check {
namespace {

std::unique_ptr<Gpu> OpenSim(const sim::Config& config = {}) {
  sim::Reset(config);
  std::string error;
  std::unique_ptr<Gpu> gpu = Gpu::Open(/*simulated=*/true, 0, &error);
  INFO(error);
  REQUIRE(gpu != nullptr);
  return gpu;
}

const Check& Named(const std::string& name) {
  for (const Check& check : AllChecks()) {
    if (check.name == name) return check;
  }
  FAIL("no check is named " << name);
  return AllChecks().front();
}

nlohmann::json RunAll(const Gpu& gpu, const std::vector<Check>& checks) {
  return RunChecks(gpu, checks, [](const nlohmann::json&) {});
}

Answer Fine(const Gpu&) { return {"fine", true, {}}; }
Answer FailingCall(const Gpu& gpu) {
  CUdeviceptr at = 0;
  Must(gpu.api().MemAlloc(&at, 4096), "cuMemAlloc");
  return {"allocated", true, {}};
}

}  // namespace

TEST_CASE("every check finds what Weir assumes on the simulated device", "[gpu_check]") {
  const auto gpu = OpenSim();
  const nlohmann::json result = RunAll(*gpu, AllChecks());
  CHECK(result["schema"] == "weir-gpu-check/1");
  CHECK(result["device"]["name"] == "Weir simulated GPU");
  CHECK(result["device"]["driver_version"] == 13000);
  REQUIRE(result["checks"].size() == AllChecks().size());
  for (const nlohmann::json& check : result["checks"]) {
    INFO(check.dump(2));
    CHECK_FALSE(check.contains("error"));
    CHECK(check["agrees"] != false);
    CHECK_FALSE(check["observed"].get<std::string>().empty());
  }
}

TEST_CASE("the checks leave nothing on the device and order all their accesses", "[gpu_check]") {
  const auto gpu = OpenSim();
  const uint64_t before = sim::UsedBytes(0);
  for (const Check& check : AllChecks()) {
    INFO(check.name);
    RunCheck(*gpu, check);
    CHECK(sim::UsedBytes(0) == before);
    for (const sim::Report& report : sim::CheckerReports()) {
      // A wait beside a spinning kernel shows on the simulated device as a deadlock.
      if (report.text.rfind("deadlock", 0) == 0) continue;
      CHECK(report.text == "no report");
    }
    sim::ClearCheckerReports();
  }
}

TEST_CASE("names of checks are unique, and every row asks and assumes something", "[gpu_check]") {
  std::set<std::string> names;
  for (const Check& check : AllChecks()) {
    INFO(check.name);
    CHECK(names.insert(check.name).second);
    CHECK(std::string(check.question).size() > 10);
    CHECK(std::string(check.assumed).size() > 1);
  }
}

TEST_CASE("a device that differs from the assumptions is told", "[gpu_check]") {
  sim::Config config;
  config.granularity = uint64_t{4} << 20;
  const auto gpu = OpenSim(config);
  CHECK(RunCheck(*gpu, Named("granularity"))["agrees"] == false);
  sim::SetCost("cuEventRecord", {50'000, 0, 0});
  const nlohmann::json events = RunCheck(*gpu, Named("event_latency"));
  CHECK(events["agrees"] == false);
  CHECK(events["detail"]["ns"]["cuEventRecord"] == 50'000);
}

TEST_CASE("the cost model is recovered from the measured latencies", "[gpu_check]") {
  const auto gpu = OpenSim();
  sim::SetCost("cuMemCreate", {70'000, 0, 300});
  sim::SetCost("cuMemMap", {9'000, 0, 0});
  sim::SetCost("cuMemSetAccess", {11'000, 5'000, 0});
  sim::SetCost("cuMemUnmap", {8'000, 6'000, 0});
  const nlohmann::json costs = RunCheck(*gpu, Named("mapping_latency"))["detail"]["cost_model"];
  const auto is = [&](const char* entry, double call, double per_handle, double per_mib) {
    INFO(entry << ": " << costs[entry].dump());
    CHECK(costs[entry]["call_ns"].get<double>() == Approx(call).margin(2));
    CHECK(costs[entry]["per_handle_ns"].get<double>() == Approx(per_handle).margin(2));
    CHECK(costs[entry]["per_mib_ns"].get<double>() == Approx(per_mib).margin(2));
  };
  is("cuMemCreate", 70'000, 0, 300);
  is("cuMemMap", 9'000, 0, 0);
  is("cuMemSetAccess", 11'000, 5'000, 0);
  is("cuMemUnmap", 8'000, 6'000, 0);
}

TEST_CASE("what stitching and merging cost stands beside the cost model's assumptions",
          "[gpu_check]") {
  const auto gpu = OpenSim();
  sim::SetCost("cuMemSetAccess", {25'000, 50'000, 0});  // the model says 3 us a handle
  const nlohmann::json stitch = RunCheck(*gpu, Named("stitch_latency"));
  CHECK(stitch["agrees"] == false);
  const nlohmann::json& many = stitch["detail"]["n = 16"];
  CHECK(many["stitch"]["us"].get<double>() == Approx(16 * 4 + 25 + 16 * 50));
  CHECK(many["stitch"]["assumed_us"].get<double>() == Approx(16 * 4 + 25 + 16 * 3));
  CHECK(many["unmap"]["us"].get<double>() == Approx(16 * 20));
  const nlohmann::json merge = RunCheck(*gpu, Named("merge_latency"));
  CHECK(merge["detail"]["access"]["us"].get<double>() == Approx(75));
  CHECK(merge["detail"]["access"]["assumed_us"].get<double>() == Approx(28));
  // One call of each kind, two waits among them; the copy is one call whatever it copies.
  CHECK(merge["detail"]["sum"]["us"].get<double>() == Approx(200 + 1 + 200 + 20 + 4 + 75 + 20));
}

TEST_CASE("a driver that refuses what aliases need is told, and nothing is left behind",
          "[gpu_check]") {
  const auto [name, entry, nth] = GENERATE(table<const char*, const char*, uint64_t>({
      {"access_over_several", "cuMemSetAccess", 3},  // after those of two homes
      {"alias_map_beside_work", "cuMemSetAccess", 2},
      {"alias_map_beside_work", "cuMemMap", 10},  // behind the gate
      {"alias_unmap_beside_work", "cuMemUnmap", 1},
      {"alias_unmap_beside_work", "cuMemUnmap", 9},
  }));
  INFO(name << ": " << entry << " " << nth);
  const auto gpu = OpenSim();
  const uint64_t before = sim::UsedBytes(0);
  sim::InjectFault({entry, nth, false, CUDA_ERROR_INVALID_VALUE, false});
  const nlohmann::json check = RunCheck(*gpu, Named(name));
  sim::ClearFaults();
  INFO(check.dump(2));
  CHECK(check["agrees"] == false);
  CHECK_FALSE(check.contains("error"));
  CHECK(sim::UsedBytes(0) == before);
}

TEST_CASE("Weir's own runs come to what they are about, and check all that they free",
          "[gpu_check]") {
  const auto gpu = OpenSim();
  for (const char* name : {"weir_tight", "weir_serving"}) {
    const nlohmann::json check = RunCheck(*gpu, Named(name));
    INFO(check.dump(2));
    CHECK(check["agrees"] == true);
    CHECK(check["detail"]["wrong_blocks"] == 0);
    CHECK(check["detail"]["checked_blocks"] > 200);
    CHECK(check["detail"]["still_reserved_bytes"] == 0);
  }
}

TEST_CASE("a block of Weir whose contents change is told", "[gpu_check]") {
  // Overwrites a part of the first memory that Weir mapped, when it maps more: its block is in use.
  struct Vandal {
    const Gpu* gpu;
    CUdeviceptr first = 0;
    int mapped = 0;
    static void On(int, void* address, size_t, int event, void* self) {
      auto& v = *static_cast<Vandal*>(self);
      if (event != WEIR_REMAP_AFTER_MAP) return;
      if (v.mapped++ == 0) v.first = reinterpret_cast<CUdeviceptr>(address);
      if (v.mapped == 8) v.gpu->Set(v.first, 0, 1);
    }
  };
  const auto gpu = OpenSim();
  Vandal vandal{gpu.get()};
  RemapObservers::Get().observers().Add({&Vandal::On, &vandal});
  const nlohmann::json check = RunCheck(*gpu, Named("weir_serving"));
  REQUIRE(RemapObservers::Get().observers().Remove({&Vandal::On, &vandal}));
  INFO(check.dump(2));
  CHECK(check["agrees"] == false);
  CHECK(check["detail"]["wrong_blocks"] == 1);
}

TEST_CASE("the capture table tells refusal, invalidation and the effect of the relaxed scope",
          "[gpu_check]") {
  const auto gpu = OpenSim();
  const nlohmann::json table = RunCheck(*gpu, Named("capture_table"))["detail"];
  CHECK(table["cuMemAlloc"]["global"] == "STREAM_CAPTURE_UNSUPPORTED (900), capture invalidated");
  CHECK(table["cuMemAlloc"]["thread-local, other thread"] == "SUCCESS");
  CHECK(table["cuMemAlloc"]["global, relaxed scope"] == "SUCCESS");
  CHECK(table["cuStreamIsCapturing (legacy, blocking captures)"]["global"] ==
        "STREAM_CAPTURE_IMPLICIT (906)");
  CHECK(table["cuEventQuery (captured event)"]["relaxed"].get<std::string>().find("907") !=
        std::string::npos);
}

TEST_CASE("a slow path that breaks a capture is told", "[gpu_check]") {
  const auto gpu = OpenSim();
  // The scene allocates before each capture; only the call within it is to fail.
  sim::InjectFault({"cuMemAddressFree", 1, true, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, false});
  const nlohmann::json check = RunCheck(*gpu, Named("capture_relaxed_scope"));
  sim::ClearFaults();
  CHECK(check["agrees"] == false);
  CHECK(check["observed"].get<std::string>().find("cuMemAddressFree") != std::string::npos);
}

TEST_CASE("a check whose call fails is recorded and the run goes on", "[gpu_check]") {
  const auto gpu = OpenSim();
  sim::InjectFault({"cuMemAlloc", 1, false, CUDA_ERROR_OUT_OF_MEMORY, false});
  const nlohmann::json checks =
      RunAll(*gpu, {{"failing", "q", "a", FailingCall}, {"fine", "q", "a", Fine}})["checks"];
  CHECK(checks[0]["error"] == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(checks[0]["agrees"].is_null());
  CHECK(checks[0]["observed"] == "not found out: cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2)");
  CHECK(checks[1]["agrees"] == true);
}

TEST_CASE("after an error that breaks the context the rest is listed as not run", "[gpu_check]") {
  const auto gpu = OpenSim();
  sim::InjectFault({"cuMemAlloc", 1, false, CUDA_ERROR_ILLEGAL_ADDRESS, true});
  const nlohmann::json result =
      RunAll(*gpu, {{"breaking", "q", "a", FailingCall}, {"fine", "q", "a", Fine}});
  CHECK(result["broken_by"] == "breaking");
  REQUIRE(result["checks"].size() == 2);
  CHECK(result["checks"][1]["agrees"].is_null());
  CHECK(result["checks"][1]["observed"] == "not run: breaking broke the context");
  sim::Reset();
}

TEST_CASE("a device without memory mapping answers the other questions", "[gpu_check]") {
  sim::Config config;
  config.vmm = false;
  const auto gpu = OpenSim(config);
  CHECK(RunCheck(*gpu, Named("alias_visibility"))["error"] == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(RunCheck(*gpu, Named("weir_tight"))["error"] == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(RunCheck(*gpu, Named("classic_alignment"))["agrees"] == true);
  CHECK(RunCheck(*gpu, Named("capture_relaxed_scope"))["agrees"] == true);
  CHECK(RunCheck(*gpu, Named("free_waits"))["agrees"] == true);
}

}  // namespace weir::gpu_check
