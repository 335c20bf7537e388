// One worker thread per stream. Interleavings come from the machine; the simulator lock is held
// while an operation moves bytes, so what runs in parallel is the order of the streams, the host
// threads and the host functions.
#include <list>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "tools/simcuda/executor.h"

namespace weir::sim {
namespace {

class ThreadedExecutor final : public StreamExecutor {
 public:
  using StreamExecutor::StreamExecutor;

  void RunDownTo(uint64_t) override {}
  bool Step() override { return false; }

  bool WaitUntil(absl::FunctionRef<bool()> done) override {
    while (!done()) {
      if (!AnythingRunsOrIsReady()) return false;
      WaitForChange();
    }
    return true;
  }

  void Stop() override {
    stopping_ = true;
    changed_.notify_all();
    lock_->unlock();
    for (Worker& worker : workers_) worker.thread.join();
    lock_->lock();
    workers_.clear();
  }

 private:
  struct Worker {
    std::thread thread;
    bool ended = false;
  };

  void OnEnqueued(const std::shared_ptr<Stream>& stream) override {
    changed_.notify_all();
    if (with_worker_.contains(stream.get())) return;
    // Workers whose stream ended have nothing left to do but to return, so joining them is quick.
    workers_.remove_if([](Worker& worker) {
      if (worker.ended) worker.thread.join();
      return worker.ended;
    });
    with_worker_[stream.get()] = stream;
    Worker& worker = workers_.emplace_back();
    worker.thread = std::thread([this, stream, &worker] { Work(stream, &worker); });
  }

  void Work(const std::shared_ptr<Stream>& stream, Worker* self) {
    std::lock_guard<std::mutex> guard(*lock_);
    while (!stopping_) {
      if (stream->Ready()) {
        RunHead(stream);
      } else if (stream->destroyed && stream->idle()) {
        break;
      } else {
        WaitForChange();
      }
    }
    with_worker_.erase(stream.get());
    self->ended = true;
  }

  bool stopping_ = false;
  std::list<Worker> workers_;  // addresses stay
  absl::flat_hash_map<const Stream*, std::shared_ptr<Stream>> with_worker_;
};

}  // namespace

std::unique_ptr<StreamExecutor> MakeThreadedExecutor(std::mutex* lock, StreamExecutor::Run run) {
  return std::make_unique<ThreadedExecutor>(lock, std::move(run));
}

}  // namespace weir::sim
