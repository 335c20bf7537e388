#include "tools/simcuda/executor.h"

#include <utility>

namespace weir::sim {

void StreamExecutor::Enqueue(const std::shared_ptr<Stream>& stream, QueuedOperation operation) {
  if (stream->queue.empty()) active_.push_back(stream);
  stream->queue.push_back(std::move(operation));
  ++queued_;
  OnEnqueued(stream);
}

void StreamExecutor::Deactivate(const Stream& stream) {
  for (std::shared_ptr<Stream>& active : active_) {
    if (active.get() != &stream) continue;
    active = std::move(active_.back());
    active_.pop_back();
    return;
  }
}

void StreamExecutor::RunHead(const std::shared_ptr<Stream>& stream) {
  const std::shared_ptr<Stream> keep = stream;  // `stream` may be an element of active_
  QueuedOperation operation = std::move(keep->queue.front());
  keep->queue.pop_front();
  --queued_;
  if (keep->queue.empty()) Deactivate(*keep);
  keep->running = true;
  ++running_;
  run_(*keep, operation);
  --running_;
  keep->running = false;
  ++keep->completed;
  changed_.notify_all();
}

void StreamExecutor::Drop(Stream& stream) {
  if (!stream.queue.empty()) {
    queued_ -= stream.queue.size();
    stream.queue.clear();
    Deactivate(stream);
  }
  while (stream.running) WaitForChange();
  stream.completed = stream.submitted;
  changed_.notify_all();
}

void StreamExecutor::Wake() { changed_.notify_all(); }

void StreamExecutor::WaitForChange() { changed_.wait(*lock_); }

bool StreamExecutor::AnythingRunsOrIsReady() const {
  if (running_ > 0) return true;
  for (const std::shared_ptr<Stream>& stream : active_) {
    if (stream->Ready()) return true;
  }
  return false;
}

namespace {

class DeterministicExecutor final : public StreamExecutor {
 public:
  DeterministicExecutor(std::mutex* lock, Run run, uint64_t seed)
      : StreamExecutor(lock, std::move(run)), random_(seed) {}

  void RunDownTo(uint64_t limit) override {
    while (queued_ > limit && Step()) {
    }
  }

  bool Step() override {
    ready_.clear();
    for (size_t i = 0; i < active_.size(); ++i) {
      if (active_[i]->Ready()) ready_.push_back(i);
    }
    if (ready_.empty()) return false;
    RunHead(active_[ready_[ready_.size() == 1 ? 0 : random_.Below(ready_.size())]]);
    return true;
  }

  bool WaitUntil(absl::FunctionRef<bool()> done) override {
    while (!done()) {
      if (Step()) continue;
      if (running_ == 0) return false;
      WaitForChange();  // another thread is inside a host function
    }
    return true;
  }

 private:
  void OnEnqueued(const std::shared_ptr<Stream>&) override {}

  Random random_;
  std::vector<size_t> ready_;  // scratch of Step
};

}  // namespace

std::unique_ptr<StreamExecutor> MakeDeterministicExecutor(std::mutex* lock, StreamExecutor::Run run,
                                                          uint64_t seed) {
  return std::make_unique<DeterministicExecutor>(lock, std::move(run), seed);
}

}  // namespace weir::sim
