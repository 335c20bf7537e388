// The weir command: its command line.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "tools/replay/fit_command.h"
#include "tools/replay/replay_command.h"
#include "tools/replay/trace_commands.h"
#include "weir/weir.h"

namespace weir::replay {
namespace {

// "sim" or the number of a real device.
std::string SetDevice(const std::string& text, ReplayOptions* options) {
  options->simulated = text == "sim";
  if (options->simulated) return "";
  if (text.empty() || text.size() > 2 || text.find_first_not_of("0123456789") != text.npos) {
    return "the device is neither sim nor a number";
  }
  options->device = std::stoi(text);
  return "";
}

CLI::App* AddFit(CLI::App* app, FitCommand* command) {
  CLI::App* fit = app->add_subcommand("fit", "Find the smallest device on which traces complete");
  fit->add_option("TRACE", command->traces, "Traces of any known format")->required();
  fit->add_option("--allocator", command->allocators, "weir, and others that bench/run has built")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  fit->add_option("--options", command->weir_options,
                  "Options for Weir as WEIR_CONF has them; given again: one more run with others")
      ->allow_extra_args(false);
  fit->add_option("--scale", command->scale, "Multiply the size of every request by this")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 20))
      ->capture_default_str();
  fit->add_option("--jobs", command->parallel, "Searches at a time")
      ->check(CLI::Range(size_t{1}, size_t{64}))
      ->capture_default_str();
  fit->add_option("--json", command->json_path, "Write the result as JSON (weir-fit/1)");
  fit->add_option("--report", command->report_path, "Write a report for people (HTML)");
  return fit;
}

int Main(int argc, char** argv) {
  CLI::App app("Weir's tools: replay of allocation traces on a simulated or real GPU.", "weir");
  app.require_subcommand(1);
  app.set_version_flag("--version", weir_version());

  ReplayCommand command;
  std::string device = "sim", streams = "keep", synthetic;
  constexpr uint64_t kDefaultMemory = uint64_t{80} << 30;
  CLI::App* replay = app.add_subcommand("replay", "Make a trace's allocations and report on them");
  replay->add_option("TRACE", command.traces, "Traces of any known format")->required();
  replay->add_option("--device", device, "sim, or the number of a GPU")->capture_default_str();
  CLI::Option* memory =
      replay
          ->add_option("--memory", command.options.memory_bytes,
                       "Memory of each simulated device (80GiB), or limit on a GPU")
          ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true));
  CLI::Option* streams_option =
      replay
          ->add_option("--streams", streams,
                       "keep the trace's streams, or make them one per device")
          ->check(CLI::IsMember({"keep", "one"}))
          ->capture_default_str();
  replay
      ->add_option(
          "--synthetic-streams", synthetic,
          "Four streams per device instead, by a request's size or in turns of 50 requests")
      ->check(CLI::IsMember({"size", "turns"}))
      ->excludes(streams_option);
  replay
      ->add_option("--lag", command.options.lag,
                   "Events from a free to the end of the work before it (simulated device)")
      ->check(CLI::Range(uint64_t{0}, uint64_t{1000000}))
      ->capture_default_str();
  replay->add_option("--repeat", command.options.passes, "Passes over each trace")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1000000}))
      ->capture_default_str();
  replay->add_option("--jobs", command.parallel, "Traces replayed at a time")
      ->check(CLI::Range(size_t{1}, size_t{64}))
      ->capture_default_str();
  replay->add_flag("--verify", command.options.verify,
                   "Write every block and check it before its free, in stream order");
  replay->add_flag("--timeline", command.options.timeline, "Put a timeline into the JSON");
  replay->add_option("--json", command.json_path, "Write the result as JSON (weir-replay/1)");
  replay->add_option("--report", command.report_path, "Write a report for people (HTML)");

  FitCommand fit_command;
  const CLI::App* fit = AddFit(&app, &fit_command);

  CLI::App* trace = app.add_subcommand("trace", "Convert traces, or tell what is in them");
  trace->require_subcommand(1);
  std::string from, to;
  CLI::App* convert = trace->add_subcommand("convert", "Write a trace in Weir's compact form");
  convert->add_option("IN", from, "A trace of any known format")->required();
  convert->add_option("OUT", to, "The file to write, by custom NAME.weirtrace")->required();
  std::vector<std::string> info_paths;
  CLI::App* info = trace->add_subcommand("info", "Print what is in traces");
  info->add_option("TRACE", info_paths, "Traces of any known format")->required();

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitBadInput;
  }
  if (fit->parsed()) return RunFitCommand(fit_command);
  if (convert->parsed()) return ConvertTrace(from, to);
  if (info->parsed()) return PrintTraceInfo(info_paths);

  if (const std::string wrong = SetDevice(device, &command.options); !wrong.empty()) {
    std::fprintf(stderr, "weir: --device %s: %s\n", device.c_str(), wrong.c_str());
    return kExitBadInput;
  }
  if (command.options.simulated && memory->empty()) command.options.memory_bytes = kDefaultMemory;
  constexpr uint64_t kLeastMemory = uint64_t{2} << 20, kMostMemory = uint64_t{64} << 40;
  if (command.options.simulated &&
      (command.options.memory_bytes < kLeastMemory || command.options.memory_bytes > kMostMemory)) {
    std::fprintf(stderr, "weir: --memory: a simulated device has 2MiB to 64TiB\n");
    return kExitBadInput;
  }
  command.options.one_stream = streams == "one";
  if (synthetic == "size") command.options.synthetic_streams = SyntheticStreams::kSize;
  if (synthetic == "turns") command.options.synthetic_streams = SyntheticStreams::kTurns;
  return RunReplayCommand(command);
}

}  // namespace
}  // namespace weir::replay

int main(int argc, char** argv) { return weir::replay::Main(argc, argv); }
