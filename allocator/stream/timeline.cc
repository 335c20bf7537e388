#include "allocator/stream/timeline.h"

#include <algorithm>
#include <utility>

namespace weir {

DriverStatus EventPool::Take(const DeviceDriver& driver, Event* event) {
  if (free_.empty()) return driver.CreateEvent(event);
  *event = free_.back();
  free_.pop_back();
  return {};
}

void StreamTimeline::Defer(std::shared_ptr<DeferredFree> free, uint64_t bytes) {
  const Epoch epoch = open();
  const bool is_first = deferred_.empty() || deferred_.back().epoch != epoch;
  deferred_.push_back({epoch, std::move(free)});  // may throw: first
  unmarked_bytes_ = is_first ? bytes : unmarked_bytes_ + bytes;
}

DriverStatus StreamTimeline::Close(const MarkerCalls& calls) {
  if (kind() == Kind::kContext && !calls.driver.has_context_events()) return {};  // Wait proves it
  if (kind() == Kind::kStream) {
    bool capturing = false;
    if (DriverStatus status = calls.driver.IsCapturing(stream_, &capturing); !status.ok())
      return status;
    if (capturing) return {};
  }
  Event event = nullptr;
  if (DriverStatus status = calls.events.Take(calls.driver, &event); !status.ok()) return status;
  const Epoch epoch = open_.fetch_add(1);  // before the event is recorded: see Note [Epochs]
  const DriverStatus status = kind() == Kind::kContext ? calls.driver.RecordContextEvent(event)
                                                       : calls.driver.RecordEvent(event, stream_);
  if (!status.ok()) {
    calls.events.Put(event);
    if (kind() == Kind::kContext && status.is_mechanism_failure()) {
      calls.driver.SwitchOffContextEvents(status);
      return {};
    }
    return status;
  }
  markers_.push_back({epoch, event});
  return {};
}

DriverStatus StreamTimeline::Poll(const MarkerCalls& calls) {
  while (!markers_.empty()) {
    bool complete = false;
    const Marker marker = markers_.front();
    if (DriverStatus status = calls.driver.QueryEvent(marker.event, &complete); !status.ok())
      return status;
    if (!complete) return {};
    markers_.pop_front();
    calls.events.Put(marker.event);
    Complete(marker.epoch);
  }
  return {};
}

DriverStatus StreamTimeline::Wait(const MarkerCalls& calls, Epoch epoch) {
  if (IsComplete(epoch)) return {};
  if (markers_.empty() || markers_.back().epoch < epoch) {
    if (DriverStatus status = Close(calls); !status.ok()) return status;
  }
  if (markers_.empty() || markers_.back().epoch < epoch) {
    if (kind() == Kind::kStream) {
      return DriverStatus::CaptureForbids("cuEventRecord");
    }
    const Epoch last = open_.fetch_add(1);
    const DriverStatus status = calls.driver.SynchronizeContext();
    if (status.ok()) Complete(last);
    return status;
  }
  // A later marker of a timeline is never complete before an earlier one.
  size_t first = 0;
  while (markers_[first].epoch < epoch) ++first;
  const Marker marker = markers_[first];
  if (DriverStatus status = calls.driver.SynchronizeEvent(marker.event); !status.ok())
    return status;
  for (size_t i = 0; i <= first; ++i) {
    calls.events.Put(markers_.front().event);
    markers_.pop_front();
  }
  Complete(marker.epoch);
  return {};
}

bool StreamTimeline::MakeStreamWait(const MarkerCalls& calls, Epoch epoch, Stream stream,
                                    DriverStatus* status) {
  const auto marker = std::find_if(markers_.begin(), markers_.end(),
                                   [epoch](const Marker& m) { return m.epoch >= epoch; });
  if (marker == markers_.end()) return false;
  *status = calls.driver.WaitEvent(stream, marker->event);
  return status->ok();
}

void StreamTimeline::Complete(Epoch epoch) {
  // A synchronization of the context may have completed more than a marker queried later.
  completed_.store(std::max(epoch, completed_.load()));
}

}  // namespace weir
