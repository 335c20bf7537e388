#include "tools/replay/forked.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"

namespace weir::replay {
namespace {

constexpr int kPollMs = 100;

bool WriteAll(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = write(fd, text.data() + done, text.size() - done);
    if (wrote < 0 && errno != EINTR) return false;
    if (wrote > 0) done += static_cast<size_t>(wrote);
  }
  return true;
}

class Forked {
 public:
  Forked() = default;
  ~Forked() {
    if (fd_ >= 0) close(fd_);
  }
  Forked(const Forked&) = delete;
  Forked& operator=(const Forked&) = delete;

  int fd() const { return fd_; }
  // False if there is no process: Finish() says why.
  bool Start(const ForkBody& body);
  // Takes what the process has written; false at its end.
  bool ReadSome();
  // Waits for the end. To be called once.
  ForkOutcome Finish();

 private:
  bool FailToStart(const char* what) {
    outcome_.failure = absl::StrCat("could not be started: ", what, ": ", std::strerror(errno));
    return false;
  }

  pid_t child_ = -1;
  int fd_ = -1;
  ForkOutcome outcome_;
};

bool Forked::Start(const ForkBody& body) {
  int ends[2];
  if (pipe(ends) != 0) return FailToStart("pipe");
  std::fflush(nullptr);  // or the child would write it again
  child_ = fork();
  if (child_ == 0) {
    close(ends[0]);
    // No destructors: queued work of the simulated device may refer to anything.
    _exit(WriteAll(ends[1], body()) ? 0 : 1);
  }
  close(ends[1]);
  fd_ = ends[0];
  return child_ > 0 || FailToStart("fork");
}

bool Forked::ReadSome() {
  char piece[1 << 16];
  const ssize_t got = read(fd_, piece, sizeof(piece));
  if (got < 0) return errno == EINTR;
  outcome_.output.append(piece, static_cast<size_t>(got));
  return got > 0;
}

ForkOutcome Forked::Finish() {
  if (child_ <= 0) return outcome_;
  int status = 0;
  while (waitpid(child_, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    outcome_.failure = absl::StrCat("died of signal ", signal, " (", strsignal(signal), ")");
  } else if (WEXITSTATUS(status) != 0) {
    outcome_.failure = absl::StrCat("ended with status ", WEXITSTATUS(status));
  }
  return outcome_;
}

}  // namespace

ForkOutcome RunInFork(const ForkBody& body) {
  Forked forked;
  if (forked.Start(body)) {
    while (forked.ReadSome()) {
    }
  }
  return forked.Finish();
}

void RunInForks(size_t count, size_t parallel, const std::function<std::string(size_t)>& body,
                const std::function<void(size_t, const ForkOutcome&)>& on_done,
                const std::function<void(const std::vector<size_t>&)>& on_wait) {
  std::vector<std::unique_ptr<Forked>> forks;
  std::vector<size_t> running;  // which each of them runs
  size_t next = 0;
  while (next < count || !running.empty()) {
    while (next < count && running.size() < parallel) {
      const size_t index = next++;
      auto forked = std::make_unique<Forked>();
      if (forked->Start([&] { return body(index); })) {
        forks.push_back(std::move(forked));
        running.push_back(index);
      } else {
        on_done(index, forked->Finish());
      }
    }
    on_wait(running);
    std::vector<pollfd> waits;
    for (const auto& forked : forks) waits.push_back({forked->fd(), POLLIN, 0});
    if (poll(waits.data(), waits.size(), kPollMs) <= 0) continue;
    for (size_t i = waits.size(); i-- > 0;) {
      if (waits[i].revents == 0 || forks[i]->ReadSome()) continue;
      const size_t index = running[i];
      const ForkOutcome outcome = forks[i]->Finish();
      forks.erase(forks.begin() + static_cast<std::ptrdiff_t>(i));
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
      on_done(index, outcome);
    }
  }
}

}  // namespace weir::replay
