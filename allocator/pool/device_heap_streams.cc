// DeviceHeap: the heaps of streams, and what is done for their frees between misses.
#include <memory>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "allocator/pool/device_heap.h"
#include "allocator/vmm/remap_observers.h"

namespace weir {
namespace {

const Stream kPerThreadStream = reinterpret_cast<Stream>(uintptr_t{2});

}  // namespace

HeapError CheckStream(const DeviceDriver& driver, Stream stream) {
  if (stream == nullptr || stream == kPerThreadStream || stream == kAnyStream) return {};
  int device = driver.ordinal();
  if (DriverStatus status = driver.StreamDevice(stream, &device); !status.ok()) {
    return {WEIR_ERROR_INVALID_ARGUMENT, absl::StrCat("not a stream of CUDA: ", status.ToString())};
  }
  if (device == driver.ordinal()) return {};
  return {WEIR_ERROR_INVALID_ARGUMENT,
          absl::StrCat("the stream belongs to device ", device, ", the memory to device ",
                       driver.ordinal(), ": call weir_set_device or name the device")};
}

// ---- Streams ------------------------------------------------------------------------------------

StreamHeap* DeviceHeap::FindStream(StreamKey key) {
  if (last_stream_ != nullptr && last_stream_->key == key) return last_stream_;
  const auto it = by_key_.find(key);
  if (it == by_key_.end()) return nullptr;
  last_stream_ = it->second;
  return it->second;
}

StreamHeap* DeviceHeap::StreamFor(StreamKey key, HeapError* error) {
  {
    MutexLock lock(heap_mu_);
    if (StreamHeap* found = FindStream(key)) return found;
  }
  if (*error = CheckStream(*driver_, key.stream); !error->ok()) return nullptr;
  // A marker on the per-thread default stream could be recorded only by its own thread, so that
  // stream is proved complete through the context.
  const auto kind = key.stream == kPerThreadStream || key.stream == kAnyStream
                        ? StreamTimeline::Kind::kContext
                        : StreamTimeline::Kind::kStream;
  MutexLock lock(heap_mu_);
  if (StreamHeap* found = FindStream(key)) return found;
  std::shared_ptr<CapturePool> pool;
  if (HeapError gone; key.pool != 0 && (pool = FindPool(key.pool, &gone)) == nullptr) {
    key.pool = 0;  // released since the request was routed there
    if (StreamHeap* found = FindStream(key)) return found;
  }
  auto made = std::make_unique<StreamHeap>(kind, key, granule_, &records_, std::move(pool));
  if (options_.stitch && key.pool == 0) made->replay = std::make_unique<ContextReplay>();
  streams_.reserve(streams_.size() + 1);
  by_key_[key] = made.get();
  streams_.push_back(std::move(made));
  return streams_.back().get();
}

HeapError DeviceHeap::StreamDestroyed(Stream stream) {
  const StreamKey key = KeyOf(stream);
  if (stream == kAnyStream || stream == kNoStream) return {};
  if (HeapError error = CheckNotObserving(); !error.ok()) return error;
  MutexLock space(space_mu_);  // no miss of another thread is about to use the handle
  MutexLock lock(heap_mu_);
  for (const auto& gone : streams_) {
    if (!gone->IsStream(key)) continue;
    UnbindCaches(gone.get());
    by_key_.erase(gone->key);
    gone->timeline.BecomeContext();
    // The driver may give the handle's value to a new stream. A pool keeps its memory.
    gone->key = {kNoStream, 0, gone->key.pool};
  }
  last_stream_ = nullptr;
  DeleteUnusedStreams();
  return {};
}

void DeviceHeap::DeleteUnusedStreams() {
  const auto is_unused = [](const std::unique_ptr<StreamHeap>& s) {
    return s->key.stream == kNoStream && (s->key.pool == 0 || s->is_leaving()) &&
           s->borrowed == 0 && !s->timeline.has_deferred() && !s->timeline.has_markers() &&
           s->small.IsEmpty() && s->large.IsEmpty();
  };
  for (const auto& [address, streams] : uses_) {
    for (const StreamHeap* stream : streams) {
      if (stream->key.stream == kNoStream) return;  // a block still refers to a stream that is gone
    }
  }
  for (const auto& stream : streams_) {
    if (is_unused(stream)) ReturnAddresses(stream.get());
  }
  std::erase_if(streams_, is_unused);
}

// ---- What frees wait for, at calls that are no misses
// ---------------------------------------------

void DeviceHeap::TryCompleteDeferred() {
  if (RemapObservers::inside()) return;  // this thread holds the lock already
  {
    const MutexTryLock space(space_mu_);
    if (!space.held()) return;  // a miss is under way and sees to it
    try {
      const CallSeries series(*driver_);
      context_is_captured_.reset();
      LookForHolders();
      if (!CompleteDeferred(/*wait=*/false).is_fatal()) {
        MarkFrees();
        ReleaseLeaving(/*may_wait=*/false).IgnoreError();
        ReleaseByPolicy();
      }
    } catch (const std::bad_alloc&) {
      // Only a head start: a miss tries again.
    }
  }
  GiveBackToSources();
}

void DeviceHeap::MarkFrees() {
  for (StreamHeap* stream : Streams()) {
    {
      MutexLock lock(heap_mu_);
      if (!stream->wants_marker(options_.marker_bytes)) continue;
      stream->unmarked_bytes = 0;
    }
    Ask(&stream->timeline, /*close=*/true).IgnoreError();  // a miss tries again
  }
}

}  // namespace weir
