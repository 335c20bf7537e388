// Entry points of events. An event is a mark: a record replaces it, a wait copies it at the call,
// so that later records and the destruction of the event change nothing for who waits already.
#include <chrono>
#include <thread>

#include "tools/simcuda/time_entries.h"

namespace weir::sim {
namespace {

constexpr unsigned int kAllFlags =
    CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

// Simulated time passes by 1 us with each executed operation.
constexpr float kMillisecondsPerOperation = 0.001f;

// For queries and waits by the host: 907 for an event of a capture, which is invalidated if it is
// still under way, then the rule of potentially unsafe calls.
CUresult CheckHostUse(const Event& event) {
  if (event.capture != nullptr) {
    event.capture->invalidated = true;
    return CUDA_ERROR_CAPTURED_EVENT;
  }
  return Time().captures().Check(CaptureClass::kUnsafe);
}

// Waits for a record by another process, without the lock. There is nobody to say that it will
// never come, so the wait ends after a while as for a deadlock.
CUresult WaitElsewhere(const std::shared_ptr<SharedEvent>& event) {
  constexpr auto kPatience = std::chrono::seconds(30);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  std::mutex& lock = Simulator::Get().lock();
  lock.unlock();
  bool complete = event->IsComplete();
  while (!complete && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    complete = event->IsComplete();
  }
  lock.lock();
  return complete ? CUDA_SUCCESS : CUDA_ERROR_TIMEOUT;
}

// A record of all streams of a device at once: it has executed when the host has waited for it.
CUresult RecordForOthers(Event& event) {
  event.shared_record = event.shared->Record();
  const std::shared_ptr<SharedEvent> shared = event.shared;
  const uint64_t record = event.shared_record;
  const Mark mark = event.mark;
  const CUresult result = Time().Wait(mark, event.device);
  shared->Complete(record);
  return result;
}

// A wait by a stream, when the event or the stream is part of a capture.
CUresult WaitInCapture(const std::shared_ptr<Stream>& stream, const Event& event) {
  TimelineState& time = Time();
  if (event.capture == nullptr) {
    if (!event.recorded) return CUDA_SUCCESS;
    if (stream->capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    stream->capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (event.capture->ended) {
    if (stream->capture == nullptr) return CUDA_ERROR_CAPTURED_EVENT;
    stream->capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (stream->kind == StreamKind::kLegacy) {
    event.capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  return time.captures().Join(stream, event.capture, event.capture_tail);
}

}  // namespace

CUresult SimEventCreate(CUevent* event, unsigned int flags) {
  const bool timed = (flags & CU_EVENT_DISABLE_TIMING) == 0;
  const bool shared = (flags & CU_EVENT_INTERPROCESS) != 0;
  if (event == nullptr || (flags & ~kAllFlags) != 0 || (shared && timed)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto created = std::make_shared<Event>();
  created->device = CurrentDevice();
  created->timed = timed;
  if (shared) {
    created->shared = SharedEvent::Create();
    if (created->shared == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *event = Time().events().Add(std::move(created));
  return CUDA_SUCCESS;
}

CUresult SimEventDestroy(CUevent handle) {
  return Time().events().Remove(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult SimEventRecord(CUevent handle, CUstream stream_handle) {
  TimelineState& time = Time();
  const std::shared_ptr<Event> event = time.events().Find(handle);
  const std::shared_ptr<Stream> stream = FindStream(stream_handle);
  if (event == nullptr || stream == nullptr || event->device != stream->device) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (stream->capture != nullptr) {
    if (stream->capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    event->capture = stream->capture;
    event->capture_tail = stream->capture_tail;
    event->recorded = false;
    return CUDA_SUCCESS;
  }
  if (const CUresult result = time.CheckLegacy(*stream); result != CUDA_SUCCESS) return result;
  Operation operation;
  operation.kind = OperationKind::kEventRecord;
  operation.label = time.Label("cuEventRecord");
  if (event->timed) {
    event->time = std::make_shared<uint64_t>(0);
    operation.body = [at = event->time, &time] {
      *at = time.executed();
      return CUDA_SUCCESS;
    };
  }
  if (event->shared != nullptr) {
    event->shared_record = event->shared->Record();
    operation.body = [shared = event->shared, record = event->shared_record] {
      shared->Complete(record);
      return CUDA_SUCCESS;
    };
  }
  time.Enqueue(stream, std::move(operation), {}, /*even_after_errors=*/event->shared != nullptr);
  event->recorded = true;
  event->capture = nullptr;
  event->mark = TimelineState::TailOf(stream);
  if (event->shared != nullptr) {
    time.executor().RunDownTo(0);
  } else {
    time.RunAhead();
  }
  return CUDA_SUCCESS;
}

CUresult SimEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags) {
  // Event nodes (CU_EVENT_RECORD_EXTERNAL) are not simulated.
  if (flags == CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_NOT_SUPPORTED;
  return flags == 0 ? SimEventRecord(event, stream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult SimStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned int flags) {
  if (flags == CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_NOT_SUPPORTED;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  TimelineState& time = Time();
  const std::shared_ptr<Event> event = time.events().Find(handle);
  const std::shared_ptr<Stream> stream = FindStream(stream_handle);
  if (event == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->capture != nullptr || stream->capture != nullptr) {
    return WaitInCapture(stream, *event);
  }
  if (const CUresult result = time.CheckLegacy(*stream); result != CUDA_SUCCESS) return result;
  if (event->recorded_elsewhere()) return WaitElsewhere(event->shared);  // the host waits for it
  if (!event->recorded) return CUDA_SUCCESS;
  time.Enqueue(stream, time.EventWaitOperation("cuStreamWaitEvent"), {&event->mark, 1});
  time.RunAhead();
  return CUDA_SUCCESS;
}

CUresult SimEventQuery(CUevent handle) {
  const std::shared_ptr<Event> event = Time().events().Find(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult result = CheckHostUse(*event); result != CUDA_SUCCESS) return result;
  if (event->recorded_elsewhere()) {
    return event->shared->IsComplete() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  }
  if (!event->recorded) return CUDA_SUCCESS;
  const Mark mark = event->mark;  // another thread may record it meanwhile
  return Time().Query(mark, event->device);
}

CUresult SimEventSynchronize(CUevent handle) {
  const std::shared_ptr<Event> event = Time().events().Find(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult result = CheckHostUse(*event); result != CUDA_SUCCESS) return result;
  if (event->recorded_elsewhere()) return WaitElsewhere(event->shared);
  if (!event->recorded) return CUDA_SUCCESS;
  const Mark mark = event->mark;
  return WaitAsSynchronization(mark, event->device);
}

CUresult SimEventElapsedTime(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Event> start = Time().events().Find(start_handle);
  const std::shared_ptr<Event> end = Time().events().Find(end_handle);
  if (start == nullptr || end == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  for (const std::shared_ptr<Event>& event : {start, end}) {
    if (const CUresult result = CheckHostUse(*event); result != CUDA_SUCCESS) return result;
    if (!event->timed || !event->recorded) return CUDA_ERROR_INVALID_HANDLE;
  }
  if (!start->mark.Complete() || !end->mark.Complete()) return CUDA_ERROR_NOT_READY;
  *milliseconds = kMillisecondsPerOperation *
                  (static_cast<float>(*end->time) - static_cast<float>(*start->time));
  return CUDA_SUCCESS;
}

CUresult SimCtxRecordEvent(CUcontext context, CUevent handle) {
  TimelineState& time = Time();
  const int device = Simulator::Get().DeviceOf(context);
  if (device < 0) return CUDA_ERROR_INVALID_CONTEXT;
  const std::shared_ptr<Event> event = time.events().Find(handle);
  if (event == nullptr || event->device != device) return CUDA_ERROR_INVALID_HANDLE;
  if (time.captures().InvalidateDevice(device)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  event->recorded = true;
  event->capture = nullptr;
  event->mark = time.DeviceMark(device);
  if (event->shared != nullptr) return RecordForOthers(*event);
  event->time = std::make_shared<uint64_t>(time.executed());
  return CUDA_SUCCESS;
}

CUresult SimCtxWaitEvent(CUcontext context, CUevent handle) {
  TimelineState& time = Time();
  const int device = Simulator::Get().DeviceOf(context);
  if (device < 0) return CUDA_ERROR_INVALID_CONTEXT;
  const std::shared_ptr<Event> event = time.events().Find(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->capture != nullptr) {
    event->capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (time.captures().InvalidateDevice(device)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (event->recorded_elsewhere()) return WaitElsewhere(event->shared);
  if (!event->recorded) return CUDA_SUCCESS;
  const std::vector<std::shared_ptr<Stream>> streams = time.StreamsOf(device);
  for (const std::shared_ptr<Stream>& stream : streams) {
    time.Enqueue(stream, time.EventWaitOperation("cuCtxWaitEvent"), {&event->mark, 1});
  }
  time.AddContextWait(device, event->mark);
  time.RunAhead();
  return CUDA_SUCCESS;
}

}  // namespace weir::sim
