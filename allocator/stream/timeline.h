// StreamTimeline: what is known about the progress of one stream, and what waits for it.
//
// Note [Epochs]. A stream's time is counted in epochs. Memory that is freed remembers the epoch
// that was open at the free. Closing an epoch opens the next one and then records an event on the
// stream, a *marker*; when the event is complete, so is every epoch up to the closed one. The order
// matters: a free that saw epoch e open happened before the event of e was recorded, so the event
// covers all work that was submitted before the free. If recording fails, the next marker covers
// the epoch as well. Nothing is recorded until somebody needs the proof.
//
// A context timeline stands for all streams of the device: its markers capture the whole context
// (cuCtxRecordEvent, cuda.h 13.0 line 7012). It serves memory that may be used on any stream.
// Without context events (drivers before 12.5) it is proved by synchronizing the context.
#ifndef WEIR_STREAM_TIMELINE_H_
#define WEIR_STREAM_TIMELINE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "allocator/block/block.h"
#include "allocator/driver/device_driver.h"

namespace weir {

// Recycled events without timing. Guarded by the space lock.
class EventPool {
 public:
  DriverStatus Take(const DeviceDriver& driver, Event* event);
  void Put(Event event) { free_.push_back(event); }

 private:
  std::vector<Event> free_;
};

// What a timeline needs to record, query and wait for markers.
struct MarkerCalls {
  const DeviceDriver& driver;
  EventPool& events;
};

// A freed block or object that waits for `remaining` timelines; each of them holds a share.
struct DeferredFree {
  uint64_t address;
  uint32_t remaining;
  uint64_t number = 0;  // counts the heap's deferred frees: the smallest is the oldest
  uint64_t requested = 0;  // what its caller had asked for
};

class StreamTimeline {
 public:
  enum class Kind {
    kStream,   // markers on one stream
    kContext,  // markers on all streams of the context
  };

  StreamTimeline(Kind kind, Stream stream) : kind_(kind), stream_(stream) {}
  StreamTimeline(const StreamTimeline&) = delete;
  StreamTimeline& operator=(const StreamTimeline&) = delete;

  Kind kind() const { return kind_; }
  Stream stream() const { return stream_; }
  Epoch open() const { return open_.load(); }
  bool IsComplete(Epoch epoch) const { return epoch <= completed_.load(); }

  // ---- Under the heap lock ----
  // Lets a free wait for all that the stream was given so far.
  void Defer(std::shared_ptr<DeferredFree> free, uint64_t bytes);
  bool has_deferred() const { return !deferred_.empty(); }
  // Bytes deferred in the epoch of the newest deferred free.
  uint64_t unmarked_bytes() const { return unmarked_bytes_; }
  Epoch last_deferred_epoch() const { return deferred_.back().epoch; }
  // Of the oldest one that waits here; there must be one.
  uint64_t oldest_deferred() const { return deferred_.front().free->number; }
  Epoch oldest_deferred_epoch() const { return deferred_.front().epoch; }
  template <typename Fn>
  void ForEachDeferred(Fn fn) const {  // fn(const DeferredFree&)
    for (const Waiting& waiting : deferred_) fn(*waiting.free);
  }
  // Forgets the frees whose epoch is complete; calls fn(address) for those that wait for nothing
  // else.
  template <typename Fn>
  void TakeComplete(Fn fn) {
    while (!deferred_.empty() && IsComplete(deferred_.front().epoch)) {
      const std::shared_ptr<DeferredFree> free = std::move(deferred_.front().free);
      deferred_.pop_front();
      if (--free->remaining == 0) fn(free->address);
    }
  }
  // Takes the newest free back, for who could not make it wait elsewhere too.
  void UndoDefer(uint64_t bytes) {
    deferred_.pop_back();
    unmarked_bytes_ -= bytes;
  }

  // ---- Under the space lock, without the heap lock: these call the driver ----
  // While any stream of the context is under capture, Close and Wait must not be called on a
  // context timeline: they would invalidate the capture.

  // Records a marker. Does nothing on a stream under capture: there it would become part of the
  // graph.
  DriverStatus Close(const MarkerCalls& calls);
  // Learns which markers are complete, without waiting.
  DriverStatus Poll(const MarkerCalls& calls);
  // Blocks until the epoch is complete, closing it first if it is open. A capture violation,
  // without a driver call, if only a marker that a capture forbids could prove it.
  DriverStatus Wait(const MarkerCalls& calls, Epoch epoch);
  // Makes later work of a stream wait on the device for the epoch, which must be closed. False,
  // and nothing is queued, if no marker covers it.
  bool MakeStreamWait(const MarkerCalls& calls, Epoch epoch, Stream stream, DriverStatus* status);
  bool has_markers() const { return !markers_.empty(); }
  bool HasMarkerFor(Epoch epoch) const {
    return !markers_.empty() && markers_.back().epoch >= epoch;
  }

  // The stream is gone: from now on its memory is proved complete through the context.
  void BecomeContext() { kind_ = Kind::kContext; }

 private:
  struct Marker {
    Epoch epoch;
    Event event;
  };
  struct Waiting {
    Epoch epoch;
    std::shared_ptr<DeferredFree> free;
  };

  void Complete(Epoch epoch);

  std::atomic<Kind> kind_;
  const Stream stream_;
  std::atomic<Epoch> open_{1};
  std::atomic<Epoch> completed_{0};
  std::deque<Waiting> deferred_;  // heap lock; epochs never decrease
  uint64_t unmarked_bytes_ = 0;   // heap lock
  std::deque<Marker> markers_;    // space lock; epochs increase
};

}  // namespace weir

#endif  // WEIR_STREAM_TIMELINE_H_
