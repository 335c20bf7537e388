#include "tools/replay/replay_jobs.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "tools/replay/pass_result.h"
#include "tools/replay/progress.h"
#include "tools/replay/replay_child.h"
#include "tools/trace/trace_io.h"

namespace weir::replay {
namespace {

using nlohmann::json;

constexpr int kPollMs = 100;

class Job {
 public:
  Job(const ReplayOptions& options, const std::string& path, size_t index)
      : options_(options), path_(path), index_(index) {}
  ~Job() {
    if (progress_ != nullptr) munmap(progress_, sizeof(Progress));
    if (result_fd_ >= 0) close(result_fd_);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  size_t index() const { return index_; }
  const std::string& path() const { return path_; }
  int result_fd() const { return result_fd_; }

  // False with an error in Finish()'s result if no child could be started.
  bool Start();
  // Takes what the child has written; false at the end.
  bool ReadSome();
  JobResult Finish();
  double Fraction() const;

 private:
  [[noreturn]] void RunChild(int result_fd, int progress_fd) const;
  json DiedRun(const std::string& how) const;

  const ReplayOptions& options_;
  const std::string path_;
  const size_t index_;
  pid_t child_ = -1;
  int result_fd_ = -1;
  Progress* progress_ = nullptr;
  std::string output_;
  std::string start_error_;
};

bool Job::Start() {
  const auto fail = [&](const char* what) {
    start_error_ = absl::StrCat(what, ": ", std::strerror(errno));
    return false;
  };
  const int progress_fd = memfd_create("weir-replay-progress", 0);
  if (progress_fd < 0) return fail("memfd_create");
  if (ftruncate(progress_fd, sizeof(Progress)) != 0) return fail("ftruncate");
  void* page = mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED, progress_fd, 0);
  if (page == MAP_FAILED) return fail("mmap");
  progress_ = static_cast<Progress*>(page);
  progress_->event = kNoEvent;
  int ends[2];
  if (pipe(ends) != 0) return fail("pipe");
  fcntl(ends[0], F_SETFD, FD_CLOEXEC);
  child_ = fork();
  if (child_ == 0) RunChild(ends[1], progress_fd);
  close(ends[1]);
  close(progress_fd);
  result_fd_ = ends[0];
  return child_ > 0 || fail("fork");
}

void Job::RunChild(int result_fd, int progress_fd) const {
  const std::string options = json(options_).dump();
  const std::string result = std::to_string(result_fd), progress = std::to_string(progress_fd);
  execl("/proc/self/exe", "weir", kChildCommand, options.c_str(), path_.c_str(), result.c_str(),
        progress.c_str(), static_cast<char*>(nullptr));
  std::perror("weir: exec");
  _exit(127);
}

bool Job::ReadSome() {
  char piece[1 << 16];
  const ssize_t got = read(result_fd_, piece, sizeof(piece));
  if (got < 0) return errno == EINTR;
  output_.append(piece, static_cast<size_t>(got));
  return got > 0;
}

json Job::DiedRun(const std::string& how) const {
  return DiedJson(trace::TraceNameOf(path_), options_, std::max<uint64_t>(progress_->pass, 1),
                  progress_->event, how);
}

JobResult Job::Finish() {
  JobResult result;
  result.trace_path = path_;
  if (child_ <= 0) {
    result.input_error = absl::StrCat(path_, ": no process to replay it: ", start_error_);
    return result;
  }
  int status = 0;
  while (waitpid(child_, &status, 0) < 0 && errno == EINTR) {
  }
  const json output = json::parse(output_, nullptr, /*allow_exceptions=*/false);
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    result.runs.push_back(
        DiedRun(absl::StrCat("the replay died of signal ", signal, " (", strsignal(signal), ")")));
  } else if (!output.is_object() || WEXITSTATUS(status) != 0) {
    result.runs.push_back(
        DiedRun(absl::StrCat("the replay ended with status ", WEXITSTATUS(status))));
  } else if (output.contains("input_error")) {
    result.input_error = output["input_error"];
  } else {
    result.runs = output["runs"];
  }
  return result;
}

double Job::Fraction() const {
  const auto events = static_cast<double>(std::max<uint64_t>(progress_->events, 1));
  const auto passes = static_cast<double>(std::max<uint64_t>(progress_->passes, 1));
  const uint64_t event = progress_->event, pass = progress_->pass;
  if (event == kNoEvent || pass == 0) return 0;
  return (static_cast<double>(pass - 1) + static_cast<double>(event) / events) / passes;
}

class ProgressBar {
 public:
  explicit ProgressBar(size_t traces) : shown_(isatty(STDERR_FILENO) != 0), traces_(traces) {}

  void Draw(size_t done, const std::vector<std::unique_ptr<Job>>& running) const {
    if (!shown_ || running.empty()) return;
    double sum = static_cast<double>(done);
    for (const auto& job : running) sum += job->Fraction();
    const double fraction = sum / static_cast<double>(traces_);
    constexpr int kWidth = 30;
    const int filled = static_cast<int>(fraction * kWidth);
    const std::string name = trace::TraceNameOf(running.front()->path()).substr(0, 30);
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

}  // namespace

std::vector<JobResult> ReplayAll(const ReplayOptions& options,
                                 const std::vector<std::string>& trace_paths, size_t parallel,
                                 const std::function<void(const JobResult&)>& on_done) {
  std::vector<JobResult> results(trace_paths.size());
  std::vector<std::unique_ptr<Job>> running;
  const ProgressBar bar(trace_paths.size());
  size_t next = 0, done = 0;
  const auto finish = [&](Job& job) {
    bar.Clear();
    JobResult& result = results[job.index()] = job.Finish();
    ++done;
    on_done(result);
  };
  while (next < trace_paths.size() || !running.empty()) {
    while (next < trace_paths.size() && running.size() < parallel) {
      auto job = std::make_unique<Job>(options, trace_paths[next], next);
      ++next;
      if (job->Start()) {
        running.push_back(std::move(job));
      } else {
        finish(*job);
      }
    }
    bar.Draw(done, running);
    std::vector<pollfd> waits;
    for (const auto& job : running) waits.push_back({job->result_fd(), POLLIN, 0});
    if (poll(waits.data(), waits.size(), kPollMs) <= 0) continue;
    for (size_t i = waits.size(); i-- > 0;) {
      if (waits[i].revents == 0 || running[i]->ReadSome()) continue;
      finish(*running[i]);
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  bar.Clear();
  return results;
}

}  // namespace weir::replay
