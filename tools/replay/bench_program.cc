#include "tools/replay/bench_program.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"

namespace weir::replay {

using nlohmann::json;

std::string BenchProgram::PathOf(const std::string& allocator) {
  std::error_code ignored;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  return (self.parent_path() / ("weir_bench_" + allocator)).string();
}

BenchProgram::BenchProgram(const std::string& allocator, const std::string& trace_path,
                           uint64_t scale)
    : path_(PathOf(allocator)) {
  std::signal(SIGPIPE, SIG_IGN);
  int to[2], from[2];
  if (pipe2(to, O_CLOEXEC) != 0) return;
  if (pipe2(from, O_CLOEXEC) != 0) {
    close(to[0]);
    close(to[1]);
    return;
  }
  child_ = fork();
  if (child_ == 0) {
    dup2(to[0], STDIN_FILENO);
    dup2(from[1], STDOUT_FILENO);
    // The simulated device's CUDA runtime, not whichever else is installed.
    unsetenv("LD_LIBRARY_PATH");
    setenv("RMM_DEBUG_LOG_FILE", "/dev/null", 1);  // else RMM writes one where the user is
    const std::string replay = "--replay=" + trace_path, times = absl::StrCat("--scale=", scale);
    execl(path_.c_str(), path_.c_str(), replay.c_str(), times.c_str(), nullptr);
    _exit(127);
  }
  close(to[0]);
  close(from[1]);
  requests_ = fdopen(to[1], "w");
  answers_ = fdopen(from[0], "r");
}

BenchProgram::~BenchProgram() {
  if (requests_ != nullptr) std::fclose(requests_);  // the end of its input ends the program
  if (answers_ != nullptr) std::fclose(answers_);
  while (child_ > 0 && waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

json BenchProgram::Replay(uint64_t bytes, uint64_t passes) {
  if (child_ <= 0 || requests_ == nullptr || answers_ == nullptr) {
    return {{"error", path_ + " could not be started"}};
  }
  std::fprintf(requests_, "%" PRIu64 " %" PRIu64 "\n", bytes, passes);
  std::fflush(requests_);
  char* line = nullptr;
  size_t room = 0;
  const ssize_t got = getline(&line, &room, answers_);
  const std::unique_ptr<char, decltype(&std::free)> owner(line, &std::free);
  json answer = got > 0 ? json::parse(line, nullptr, /*allow_exceptions=*/false) : json();
  if (!answer.is_object()) return {{"error", path_ + " ended without an answer"}};
  return answer;
}

}  // namespace weir::replay
