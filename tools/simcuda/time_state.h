// TimelineState: what is behind Timeline. Streams, events, captures, graphs, the executor, the
// checker and the host's clock in one place, for the entry points and control functions of the time
// half. Everything is called with the simulator lock held unless said otherwise.
#ifndef WEIR_TOOLS_SIMCUDA_TIME_STATE_H_
#define WEIR_TOOLS_SIMCUDA_TIME_STATE_H_

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/types/span.h"
#include "tools/simcuda/capture.h"
#include "tools/simcuda/clock.h"
#include "tools/simcuda/executor.h"
#include "tools/simcuda/graph.h"
#include "tools/simcuda/handle_table.h"
#include "tools/simcuda/operation.h"
#include "tools/simcuda/race_checker.h"
#include "tools/simcuda/random.h"
#include "tools/simcuda/shared_event.h"
#include "tools/simcuda/stream.h"
#include "tools/simcuda/time.h"

namespace weir::sim {

struct Event {
  int device = 0;
  bool timed = true;
  bool recorded = false;                // otherwise it counts as complete
  Mark mark;                            // of the last record outside captures
  std::shared_ptr<uint64_t> time;       // when that record ran, in executed operations
  std::shared_ptr<Capture> capture;     // set if the last record was in a capture
  std::vector<uint32_t> capture_tail;   // and after these nodes
  std::shared_ptr<SharedEvent> shared;  // what other processes see of it; null: they do not
  uint64_t shared_record = 0;           // the number of the last record in this process

  // Whether another process recorded it last: `mark` says nothing then.
  bool recorded_elsewhere() const {
    return shared != nullptr && shared->last_record() != shared_record;
  }
};

class TimelineState {
 public:
  TimelineState(std::mutex* lock, AddressTranslator* translator, const Config& config);
  ~TimelineState();  // after Stop
  TimelineState(const TimelineState&) = delete;
  TimelineState& operator=(const TimelineState&) = delete;
  void Stop();  // ends the worker threads; drops the lock

  // ---- Streams ----------------------------------------------------------------------------------
  // NULL, legacy and per-thread handles are of the given device; others keep their own. Null if the
  // handle is unknown.
  std::shared_ptr<Stream> FindStream(int device, CUstream handle);
  CUstream CreateStream(int device, StreamKind kind, int priority);
  void DestroyStream(const std::shared_ptr<Stream>& stream);
  // All streams of the device that have or may get work.
  const std::vector<std::shared_ptr<Stream>>& StreamsOf(int device);

  // ---- Work -------------------------------------------------------------------------------------
  // Captures the operation if the stream captures, queues it otherwise. See Timeline::Submit.
  CUresult Submit(const std::shared_ptr<Stream>& stream, Operation operation);
  // Queues it, after the marks too. Runs nothing: call RunAhead when the stream may be left.
  std::shared_ptr<OperationRecord> Enqueue(const std::shared_ptr<Stream>& stream,
                                           Operation operation, absl::Span<const Mark> after = {},
                                           bool even_after_errors = false);
  void RunAhead() { executor_->RunDownTo(config_.run_ahead); }
  // 906 after invalidating, if the stream is a legacy stream that a capture makes unusable.
  CUresult CheckLegacy(const Stream& stream);

  // ---- Waiting ----------------------------------------------------------------------------------
  // The last operation submitted to the stream, as events record it.
  static Mark TailOf(const std::shared_ptr<Stream>& stream);
  // Everything submitted so far to the stream (to all blocking streams if it is the legacy one), or
  // to the device.
  Mark StreamMark(const std::shared_ptr<Stream>& stream);
  Mark DeviceMark(int device);
  // Blocks; the host then knows that the moment has come. 909 in a deadlock, or the sticky error.
  CUresult Wait(const Mark& mark, int device);
  // Lets the device run a little; CUDA_ERROR_NOT_READY, or as Wait.
  CUresult Query(const Mark& mark, int device);
  // Streams of the device that are created later wait for the mark too.
  void AddContextWait(int device, const Mark& mark);

  // ---- Errors -----------------------------------------------------------------------------------
  CUresult sticky(int device) const;  // needs no lock
  void Break(int device, CUresult error, const std::string& text);
  void ResetDevice(int device);

  // Inside Operation::body: what the operation's access number `index` was translated to.
  absl::Span<const PhysicalSpan> RunningSpans(size_t index) const;
  // Runs one operation now: translates and checks its accesses, then its body.
  CUresult RunNow(const Operation& operation, int device,
                  const std::shared_ptr<OperationRecord>& record);
  // An operation that does nothing; what it waits for is given to Enqueue.
  Operation EventWaitOperation(std::string_view entry);
  // "cuMemsetD8Async #12"
  std::string Label(std::string_view entry);

  AddressTranslator* translator() const { return translator_; }
  StreamExecutor& executor() { return *executor_; }
  RaceChecker& checker() { return checker_; }
  CaptureSet& captures() { return captures_; }
  GraphTable& graphs() { return graphs_; }
  GraphExecTable& graph_execs() { return graph_execs_; }
  UserObjectTable& user_objects() { return user_objects_; }
  HandleTable<Event, CUevent, 0x52>& events() { return events_; }
  LaneTable& lanes() { return lanes_; }
  Random& random() { return random_; }
  const VectorClock& host_clock() const { return *host_clock_; }
  uint64_t executed() const { return executed_; }
  void set_on_stalled_wait(std::function<bool()> hook) { on_stalled_wait_ = std::move(hook); }
  void set_spurious_not_ready(double probability) { spurious_not_ready_ = probability; }

 private:
  struct Device {
    std::atomic<CUresult> sticky{CUDA_SUCCESS};
    std::vector<std::shared_ptr<Stream>> streams;  // destroyed ones until the host saw their end
    std::shared_ptr<Stream> legacy;
    std::map<std::thread::id, std::shared_ptr<Stream>> per_thread;
    std::vector<Mark> context_waits;
  };

  std::shared_ptr<Stream> NewStream(int device, StreamKind kind, CUstream handle);
  void ForgetEndedStreams(Device& device);  // those whose end the host saw
  // Makes the next operation of the stream run after the mark: adds the waits that are needed.
  static void OrderAfter(Stream& stream, const Mark& mark, QueuedOperation* operation);
  Mark MarkOf(const std::vector<std::shared_ptr<Stream>>& streams, bool blocking_only) const;
  void HostLearns(const Mark& mark);
  void Run(Stream& stream, QueuedOperation& queued);
  std::shared_ptr<Era> CurrentEra();
  std::string DeadlockText(const Mark& mark) const;
  bool ReleasedWhileStalled();

  std::mutex* const lock_;
  AddressTranslator* const translator_;
  const Config config_;
  LaneTable lanes_;
  SharedClock host_clock_;
  uint64_t host_version_ = 1;  // changes with the host's clock
  uint64_t last_label_ = 0;
  uint64_t executed_ = 0;
  double spurious_not_ready_ = 0;
  uint64_t queries_in_a_row_ = 0;
  std::function<bool()> on_stalled_wait_;
  Random random_;  // of everything but the choice of the stream to run
  std::vector<Device> devices_;
  HandleTable<Stream, CUstream, 0x51> streams_;
  HandleTable<Event, CUevent, 0x52> events_;
  GraphTable graphs_;
  GraphExecTable graph_execs_;
  UserObjectTable user_objects_;
  CaptureSet captures_;
  RaceChecker checker_;
  std::deque<std::shared_ptr<Era>> eras_;  // with operations that have not run, and the current one
  uint64_t era_operations_ = 0;            // submitted in the current one
  std::unique_ptr<StreamExecutor> executor_;

  // The translation of the operation that runs now: spans of all accesses, and where each begins.
  std::vector<PhysicalSpan> running_spans_;
  std::vector<size_t> running_first_;
};

}  // namespace weir::sim

#endif  // WEIR_TOOLS_SIMCUDA_TIME_STATE_H_
