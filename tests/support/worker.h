// A thread that does one thing after another when the test says so, and lives on in between: what
// it keeps for itself, its thread caches above all, stays.
#ifndef WEIR_TESTS_SUPPORT_WORKER_H_
#define WEIR_TESTS_SUPPORT_WORKER_H_

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace weir::test {

class Worker {
 public:
  Worker() : thread_([this] { Run(); }) {}
  ~Worker() {
    {
      const std::lock_guard<std::mutex> lock(mu_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Runs fn in the thread and returns when it is done. No assertions of Catch inside.
  void Do(std::function<void()> fn) {
    std::unique_lock<std::mutex> lock(mu_);
    next_ = std::move(fn);
    changed_.notify_all();
    changed_.wait(lock, [this] { return next_ == nullptr; });
  }

 private:
  void Run() {
    std::unique_lock<std::mutex> lock(mu_);
    while (true) {
      changed_.wait(lock, [this] { return ending_ || next_ != nullptr; });
      if (next_ == nullptr) return;
      next_();  // whoever asked for it waits, so that the lock hinders nobody
      next_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mu_;
  std::condition_variable changed_;
  std::function<void()> next_;
  bool ending_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace weir::test

#endif  // WEIR_TESTS_SUPPORT_WORKER_H_
