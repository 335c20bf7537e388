// weir_gpu_check: asks one GPU the questions about the driver that documentation leaves open.
#include <CLI/CLI.hpp>
#include <fstream>
#include <string>

#include "tools/gpu_check/check_runner.h"
#include "tools/gpu_check/gpu.h"

namespace weir::gpu_check {
namespace {

constexpr int kExitCannotRun = 1;

struct Options {
  std::string device = "auto";
  int ordinal = 0;
  std::string json_path;
  std::vector<std::string> only;
  bool verbose = false;
  bool list = false;
};

std::unique_ptr<Gpu> OpenDevice(const Options& options) {
  std::string error;
  std::unique_ptr<Gpu> gpu;
  if (options.device != "sim") {
    gpu = Gpu::Open(/*simulated=*/false, options.ordinal, &error);
    if (gpu == nullptr && options.device == "auto") {
      std::fprintf(stderr, "no GPU, so the simulated device it is (%s)\n", error.c_str());
    }
  }
  if (gpu == nullptr && options.device != "cuda") {
    gpu = Gpu::Open(/*simulated=*/true, options.ordinal, &error);
  }
  if (gpu == nullptr) std::fprintf(stderr, "weir_gpu_check: %s\n", error.c_str());
  return gpu;
}

// The checks of these names, all if there are none; empty if a name is unknown.
std::vector<Check> Select(const std::vector<std::string>& names) {
  if (names.empty()) return AllChecks();
  std::vector<Check> chosen;
  for (const Check& check : AllChecks()) {
    if (std::find(names.begin(), names.end(), check.name) != names.end()) chosen.push_back(check);
  }
  if (chosen.size() == names.size()) return chosen;
  std::fprintf(stderr, "weir_gpu_check: --only names an unknown check; --list lists them\n");
  return {};
}

// Anew after each check, so that a run that is cut off leaves what it found.
bool WriteJson(const std::string& path, const nlohmann::json& result) {
  if (path.empty()) return true;
  std::ofstream file(path, std::ios::trunc);
  file << result.dump(2) << "\n";
  file.flush();
  if (file) return true;
  std::fprintf(stderr, "weir_gpu_check: cannot write %s\n", path.c_str());
  return false;
}

int Run(const Options& options) {
  if (options.list) {
    for (const Check& check : AllChecks()) std::printf("%-28s %s\n", check.name, check.question);
    return 0;
  }
  const std::vector<Check> checks = Select(options.only);
  if (checks.empty()) return kExitCannotRun;
  const std::unique_ptr<Gpu> gpu = OpenDevice(options);
  if (gpu == nullptr) return kExitCannotRun;

  std::printf("%s, CUDA driver %d.%d\n", gpu->caps().device_name.c_str(),
              gpu->driver_version() / 1000, gpu->driver_version() % 1000 / 10);
  bool written = true;
  int differing = 0;
  RunChecks(*gpu, checks, [&](const nlohmann::json& so_far) {
    const nlohmann::json& last = so_far["checks"].back();
    if (last["agrees"] == false) ++differing;
    PrintCheck(stdout, last, options.verbose);
    std::fflush(stdout);
    written = WriteJson(options.json_path, so_far) && written;
  });
  std::printf("%zu checks, %d differ from what Weir assumes\n", checks.size(), differing);
  return written ? 0 : kExitCannotRun;
}

int Main(int argc, char** argv) {
  CLI::App app("Asks a GPU the questions about its driver that documentation leaves open.",
               "weir_gpu_check");
  Options options;
  app.add_option("--device", options.device, "auto (a GPU if there is one), cuda or sim")
      ->check(CLI::IsMember({"auto", "cuda", "sim"}))
      ->capture_default_str();
  app.add_option("--ordinal", options.ordinal, "Number of the device")
      ->check(CLI::Range(0, 127))
      ->capture_default_str();
  app.add_option("--json", options.json_path, "Write the answers as JSON (weir-gpu-check/1)");
  app.add_option("--only", options.only, "Run these checks only")->delimiter(',');
  app.add_flag("--verbose", options.verbose, "Print questions, assumptions and details too");
  app.add_flag("--list", options.list, "Print the names of the checks and their questions");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitCannotRun;
  }
  return Run(options);
}

}  // namespace
}  // namespace weir::gpu_check

int main(int argc, char** argv) { return weir::gpu_check::Main(argc, argv); }
