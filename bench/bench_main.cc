// main() of every benchmark program: starts the device and the allocator, and runs the cases.
//
//   weir_bench_NAME [--device=sim|N] [--traces=FOLDER] [--json] [Google Benchmark's flags]
//   weir_bench_NAME --replay=TRACE [--scale=N]     (replay_server.h)
//
// --json prints Google Benchmark's JSON; its context names the allocator, its version and the
// device. Exits 3 with one line on stderr if the allocator cannot work here.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "bench/allocator.h"
#include "bench/cases.h"
#include "bench/device.h"
#include "bench/replay_server.h"

namespace weir::bench {
namespace {

constexpr int kCannotWork = 3;

struct Flags {
  StartOptions start;
  std::string traces = WEIR_BENCH_TRACES;
  bool json = false;
  std::string replay;  // "" = run the cases
  uint64_t scale = 1;
};

// Takes the program's own flags out of argv. False if one of them is wrong.
bool TakeFlags(int* argc, char** argv, Flags* flags) {
  int kept = 1;
  for (int i = 1; i < *argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.rfind("--device=", 0) == 0) {
      const std::string device(argument.substr(9));
      flags->start.simulated = device == "sim";
      char* end = nullptr;
      flags->start.device = static_cast<int>(std::strtol(device.c_str(), &end, 10));
      if (device.empty() || (!flags->start.simulated && *end != '\0')) return false;
    } else if (argument.rfind("--traces=", 0) == 0) {
      flags->traces = std::string(argument.substr(9));
    } else if (argument.rfind("--replay=", 0) == 0) {
      flags->replay = std::string(argument.substr(9));
    } else if (argument.rfind("--scale=", 0) == 0) {
      flags->scale = std::strtoull(argv[i] + 8, nullptr, 10);
    } else if (argument == "--json") {
      flags->json = true;
    } else {
      argv[kept++] = argv[i];
    }
  }
  *argc = kept;
  return true;
}

// Names without what Google Benchmark appends to them ("/threads:2", "/real_time").
template <typename Reporter>
class PlainNames : public Reporter {
 public:
  using Reporter::Reporter;
  void ReportRuns(const std::vector<benchmark::BenchmarkReporter::Run>& runs) override {
    std::vector<benchmark::BenchmarkReporter::Run> plain = runs;
    for (auto& run : plain) {
      const std::string name = run.run_name.function_name;
      run.run_name = {};
      run.run_name.function_name = name;
    }
    Reporter::ReportRuns(plain);
  }
};

int Run(int argc, char** argv) {
  Flags flags;
  if (!TakeFlags(&argc, argv, &flags)) {
    std::fprintf(stderr, "--device is sim or the number of a device\n");
    return 2;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;

  if (!flags.replay.empty()) return ServeReplays(flags.replay, flags.scale);
  if (flags.start.simulated) ConfigureSimulatedDevice();
  std::string error;
  if (!Start(flags.start, &error)) {
    std::fprintf(stderr, "%s: %s\n", Info().name.c_str(), error.c_str());
    return kCannotWork;
  }
  CountDriverCalls(flags.start.simulated && Info().device);
  StartThread();
  AddSingleCases();
  AddMemoryCases();
  AddThreadCases();
  AddTraceCases(flags.traces);

  benchmark::AddCustomContext("allocator", Info().name);
  benchmark::AddCustomContext("allocator_version", Info().version);
  if (!Info().note.empty()) benchmark::AddCustomContext("allocator_note", Info().note);
  if (Info().device) benchmark::AddCustomContext("device", DeviceName());
  if (flags.json) {
    PlainNames<benchmark::JSONReporter> reporter;
    benchmark::RunSpecifiedBenchmarks(&reporter);
  } else {
    PlainNames<benchmark::ConsoleReporter> reporter(benchmark::ConsoleReporter::OO_None);
    benchmark::RunSpecifiedBenchmarks(&reporter);
  }
  BeginCase("");
  return 0;
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) { return weir::bench::Run(argc, argv); }
