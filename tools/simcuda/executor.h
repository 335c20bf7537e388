// Executors: when the operations of the streams run. Two behind one interface: the deterministic
// one (no threads, a seeded choice at each step) and the threaded one (a worker per stream).
//
// All members are called with the simulator lock held. Running an operation may drop the lock (host
// functions), so waits and steps may too.
#ifndef WEIR_TOOLS_SIMCUDA_EXECUTOR_H_
#define WEIR_TOOLS_SIMCUDA_EXECUTOR_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tools/simcuda/random.h"
#include "tools/simcuda/stream.h"

namespace weir::sim {

class StreamExecutor {
 public:
  // Runs one operation whose turn has come. May drop and retake the lock.
  using Run = std::function<void(Stream&, QueuedOperation&)>;

  StreamExecutor(std::mutex* lock, Run run) : lock_(lock), run_(std::move(run)) {}
  virtual ~StreamExecutor() = default;
  StreamExecutor(const StreamExecutor&) = delete;
  StreamExecutor& operator=(const StreamExecutor&) = delete;

  // Appends to the stream's queue. Runs nothing in the calling thread.
  void Enqueue(const std::shared_ptr<Stream>& stream, QueuedOperation operation);
  // Drops what is queued, as if it had run, after waiting for what is running.
  void Drop(Stream& stream);
  // Something that readiness depends on changed from outside (a hold was released).
  void Wake();

  // Gives the device a chance: runs operations while more than `limit` are queued.
  virtual void RunDownTo(uint64_t limit) = 0;
  // Runs one operation in this thread; false if none was ready. Never true when threaded.
  virtual bool Step() = 0;
  // Until done() holds; false if that cannot happen: nothing runs and nothing is ready.
  virtual bool WaitUntil(absl::FunctionRef<bool()> done) = 0;
  // Ends and joins the workers. Drops the lock. The executor is of no use afterwards.
  virtual void Stop() {}

  uint64_t queued() const { return queued_; }
  bool AnythingRunsOrIsReady() const;

 protected:
  virtual void OnEnqueued(const std::shared_ptr<Stream>& stream) = 0;
  void RunHead(const std::shared_ptr<Stream>& stream);
  void WaitForChange();

  std::mutex* const lock_;
  std::condition_variable_any changed_;  // an operation was queued or ended, or a hold was released
  std::vector<std::shared_ptr<Stream>> active_;  // streams with a non-empty queue
  uint64_t queued_ = 0;
  uint64_t running_ = 0;

 private:
  void Deactivate(const Stream& stream);

  const Run run_;
};

std::unique_ptr<StreamExecutor> MakeDeterministicExecutor(std::mutex* lock, StreamExecutor::Run run,
                                                          uint64_t seed);
std::unique_ptr<StreamExecutor> MakeThreadedExecutor(std::mutex* lock, StreamExecutor::Run run);

}  // namespace weir::sim

#endif  // WEIR_TOOLS_SIMCUDA_EXECUTOR_H_
