#include "tools/gpu_check/check_runner.h"

#include <chrono>

#include "tools/gpu_check/gpu.h"

namespace weir::gpu_check {
namespace {

nlohmann::json DeviceJson(const Gpu& gpu) {
  nlohmann::json device = {
      {"name", gpu.caps().device_name},
      {"simulated", gpu.simulated()},
      {"total_bytes", gpu.caps().total_bytes},
      {"driver_version", gpu.driver_version()},
      {"compute_capability",
       std::to_string(gpu.Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)) + "." +
           std::to_string(gpu.Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR))}};
  for (const Capability* capability : gpu.caps().All()) {
    device["capabilities"][capability->name] = {{"value", capability->value},
                                                {"reason", capability->reason}};
  }
  return device;
}

nlohmann::json Blank(const Check& check) {
  return {{"name", check.name}, {"question", check.question}, {"assumed", check.assumed},
          {"observed", ""},     {"agrees", nullptr},          {"detail", nlohmann::json::object()}};
}

bool IsFinal(DriverErrorClass error_class) {
  return error_class == DriverErrorClass::kSticky || error_class == DriverErrorClass::kShuttingDown;
}

}  // namespace

nlohmann::json RunCheck(const Gpu& gpu, const Check& check) {
  nlohmann::json result = Blank(check);
  const auto begin = std::chrono::steady_clock::now();
  try {
    const Answer answer = check.run(gpu);
    result["observed"] = answer.observed;
    if (answer.agrees.has_value()) result["agrees"] = *answer.agrees;
    result["detail"] = answer.detail;
  } catch (const DriverFailure& failure) {
    result["observed"] = std::string("not found out: ") + failure.what();
    result["error"] = failure.status().result();
  }
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
  result["seconds"] = spent.count();
  return result;
}

nlohmann::json RunChecks(const Gpu& gpu, const std::vector<Check>& checks,
                         const std::function<void(const nlohmann::json&)>& progress) {
  nlohmann::json result = {{"schema", "weir-gpu-check/1"},
                           {"device", DeviceJson(gpu)},
                           {"checks", nlohmann::json::array()}};
  std::string broken_by;
  for (const Check& check : checks) {
    if (broken_by.empty()) {
      result["checks"].push_back(RunCheck(gpu, check));
      // Asynchronous errors show here at the latest.
      const DriverStatus after(gpu.api().CtxSynchronize(), "cuCtxSynchronize");
      if (IsFinal(after.error_class())) {
        broken_by = check.name;
        result["checks"].back()["broke_context"] = after.ToString();
        result["broken_by"] = broken_by;
      }
    } else {
      nlohmann::json skipped = Blank(check);
      skipped["observed"] = "not run: " + broken_by + " broke the context";
      result["checks"].push_back(skipped);
    }
    progress(result);
  }
  return result;
}

void PrintCheck(std::FILE* out, const nlohmann::json& check, bool details) {
  const nlohmann::json& agrees = check["agrees"];
  const char* verdict = agrees.is_null() ? "-" : agrees.get<bool>() ? "agrees" : "DIFFERS";
  std::fprintf(out, "%-28s %-8s %s\n", check["name"].get<std::string>().c_str(), verdict,
               check["observed"].get<std::string>().c_str());
  if (!details) return;
  std::fprintf(out, "    question: %s\n    assumed:  %s\n    detail:   %s\n",
               check["question"].get<std::string>().c_str(),
               check["assumed"].get<std::string>().c_str(), check["detail"].dump().c_str());
}

}  // namespace weir::gpu_check
