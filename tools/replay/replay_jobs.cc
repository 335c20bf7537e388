#include "tools/replay/replay_jobs.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <new>

#include "absl/strings/str_cat.h"
#include "tools/replay/forked.h"
#include "tools/replay/pass_result.h"
#include "tools/replay/progress.h"
#include "tools/replay/replay_child.h"
#include "tools/trace/trace_io.h"

namespace weir::replay {
namespace {

using nlohmann::json;

// One Progress per job, in memory that children share with this process.
class ProgressPages {
 public:
  explicit ProgressPages(size_t count) : bytes_(std::max<size_t>(count, 1) * sizeof(Progress)) {
    void* pages = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    pages_ = static_cast<Progress*>(pages);
    for (size_t i = 0; i < count; ++i) pages_[i].event = kNoEvent;
  }
  ~ProgressPages() { munmap(pages_, bytes_); }
  ProgressPages(const ProgressPages&) = delete;
  ProgressPages& operator=(const ProgressPages&) = delete;

  Progress* operator[](size_t index) { return pages_ + index; }

 private:
  const size_t bytes_;
  Progress* pages_ = nullptr;
};

double Fraction(const Progress& progress) {
  const auto events = static_cast<double>(std::max<uint64_t>(progress.events, 1));
  const auto passes = static_cast<double>(std::max<uint64_t>(progress.passes, 1));
  const uint64_t event = progress.event, pass = progress.pass;
  if (event == kNoEvent || pass == 0) return 0;
  return (static_cast<double>(pass - 1) + static_cast<double>(event) / events) / passes;
}

class ProgressBar {
 public:
  explicit ProgressBar(size_t traces) : shown_(isatty(STDERR_FILENO) != 0), traces_(traces) {}

  // `done` counts whole traces and fractions of those that run.
  void Draw(double done, const std::string& path) const {
    if (!shown_) return;
    const double fraction = done / static_cast<double>(traces_);
    constexpr int kWidth = 30;
    const int filled = static_cast<int>(fraction * kWidth);
    const std::string name = trace::TraceNameOf(path).substr(0, 30);
    std::fprintf(stderr, "\r[%s%s] %3d %%  %s\033[K",
                 std::string(static_cast<size_t>(filled), '#').c_str(),
                 std::string(static_cast<size_t>(kWidth - filled), ' ').c_str(),
                 static_cast<int>(fraction * 100), name.c_str());
  }
  void Clear() const {
    if (shown_) std::fprintf(stderr, "\r\033[K");
  }

 private:
  const bool shown_;
  const size_t traces_;
};

JobResult ResultOf(const ForkOutcome& outcome, const std::string& path,
                   const ReplayOptions& options, const Progress& progress) {
  JobResult result;
  result.trace_path = path;
  const json output = json::parse(outcome.output, nullptr, /*allow_exceptions=*/false);
  if (!outcome.failure.empty() || !output.is_object()) {
    const std::string how = outcome.failure.empty() ? "ended without a result" : outcome.failure;
    result.runs.push_back(DiedJson(trace::TraceNameOf(path), options,
                                   std::max<uint64_t>(progress.pass, 1), progress.event,
                                   absl::StrCat("the replay ", how)));
  } else if (output.contains("input_error")) {
    result.input_error = output["input_error"];
  } else {
    result.runs = output["runs"];
  }
  return result;
}

}  // namespace

std::vector<JobResult> ReplayAll(const ReplayOptions& options,
                                 const std::vector<std::string>& trace_paths, size_t parallel,
                                 const std::function<void(const JobResult&)>& on_done) {
  std::vector<JobResult> results(trace_paths.size());
  ProgressPages progress(trace_paths.size());
  const ProgressBar bar(trace_paths.size());
  size_t done = 0;
  RunInForks(
      trace_paths.size(), parallel,
      [&](size_t i) { return DumpJson(ReplayFileHere(options, trace_paths[i], progress[i])); },
      [&](size_t i, const ForkOutcome& outcome) {
        bar.Clear();
        ++done;
        results[i] = ResultOf(outcome, trace_paths[i], options, *progress[i]);
        on_done(results[i]);
      },
      [&](const std::vector<size_t>& running) {
        if (running.empty()) return;
        double sum = static_cast<double>(done);
        for (const size_t i : running) sum += Fraction(*progress[i]);
        bar.Draw(sum, trace_paths[running.front()]);
      });
  bar.Clear();
  return results;
}

}  // namespace weir::replay
