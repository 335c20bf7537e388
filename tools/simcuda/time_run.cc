// Running operations: translation, the checker, bodies, and what happens to a context that breaks.
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/simcuda/time_state.h"

namespace weir::sim {
namespace {

thread_local bool in_host_function = false;

// User code: it may take as long as it likes and call control functions, so without the lock.
CUresult RunHostFunction(std::mutex* lock, const std::function<CUresult()>& body) {
  lock->unlock();
  in_host_function = true;
  const CUresult result = body();
  in_host_function = false;
  lock->lock();
  return result;
}

}  // namespace

bool Timeline::InHostFunction() { return in_host_function; }

void Timeline::CallHostFunction(absl::FunctionRef<void()> function) {
  in_host_function = true;
  function();
  in_host_function = false;
}

CUresult TimelineState::RunNow(const Operation& operation, int device,
                               const std::shared_ptr<OperationRecord>& record) {
  running_spans_.clear();
  running_first_.clear();
  for (size_t i = 0; i < operation.accesses.size(); ++i) {
    const Access& access = operation.accesses[i];
    running_first_.push_back(running_spans_.size());
    if (access.bytes == 0) continue;
    const int view = operation.access_devices.empty() ? device : operation.access_devices[i];
    const CUresult result =
        translator_->Translate(view, access.address, access.bytes, access.write, &running_spans_);
    if (result != CUDA_SUCCESS) {
      Break(device, result,
            absl::StrCat("page fault: '", record->label, "' (stream ", record->stream_id, ") ",
                         access.write ? "writes" : "reads", " [0x", absl::Hex(access.address),
                         ", +", access.bytes, "), not all of which is mapped with that right"));
      return result;
    }
  }
  running_first_.push_back(running_spans_.size());
  if (config_.checker) {
    for (size_t i = 0; i < operation.accesses.size(); ++i) {
      const absl::Span<const PhysicalSpan> spans = RunningSpans(i);
      checker_.Check(record, operation.accesses[i].address, spans.data(), spans.size(),
                     operation.accesses[i].write);
    }
  }
  if (!operation.body) return CUDA_SUCCESS;
  const CUresult result = operation.kind == OperationKind::kHostFunction
                              ? RunHostFunction(lock_, operation.body)
                              : operation.body();
  if (result != CUDA_SUCCESS) {
    Break(device, result, absl::StrCat("'", record->label, "' failed with error ", result));
  }
  return result;
}

absl::Span<const PhysicalSpan> TimelineState::RunningSpans(size_t index) const {
  return absl::MakeConstSpan(running_spans_)
      .subspan(running_first_[index], running_first_[index + 1] - running_first_[index]);
}

void TimelineState::Run(Stream& stream, QueuedOperation& queued) {
  ++executed_;
  if (sticky(stream.device) == CUDA_SUCCESS || queued.even_after_errors) {
    RunNow(queued.operation, stream.device, queued.record);
  }
  queued.record->clock = nullptr;  // the checker keeps the record, and needs no more than its place
}

CUresult TimelineState::sticky(int device) const {
  return devices_[static_cast<size_t>(device)].sticky.load(std::memory_order_acquire);
}

void TimelineState::Break(int device, CUresult error, const std::string& text) {
  CUresult healthy = CUDA_SUCCESS;
  if (devices_[static_cast<size_t>(device)].sticky.compare_exchange_strong(healthy, error)) {
    checker_.AddReport({text, "", ""});
  }
}

void TimelineState::ResetDevice(int index) {
  captures_.DropDevice(index);
  Device& device = devices_[static_cast<size_t>(index)];
  const std::vector<std::shared_ptr<Stream>> streams = std::move(device.streams);
  device.streams.clear();
  for (const std::shared_ptr<Stream>& stream : streams) {
    if (!stream->destroyed) streams_.Remove(stream->handle);
    stream->destroyed = true;
    stream->held = false;
    executor_->Drop(*stream);
    // Nothing of the device runs any more, so whatever comes is ordered after what was.
    HostLearns(TailOf(stream));
    lanes_.GiveBack(stream->lane);
  }
  device.legacy = nullptr;
  device.per_thread.clear();
  device.context_waits.clear();
  events_.RemoveIf([index](const Event& event) { return event.device == index; });
  device.sticky.store(CUDA_SUCCESS, std::memory_order_release);
}

}  // namespace weir::sim
