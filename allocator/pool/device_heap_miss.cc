// DeviceHeap: what happens when no free block fits. The rungs, each followed by another look:
//
//   1. frees whose markers are complete, and what lies in thread caches
//   2. new memory within the soft limit; beyond it idle complete handles from anywhere; where these
//      are not enough, new memory up to the hard limit
//   3. free blocks of other streams in granules that are partly in use, borrowed
//   4. as 2, and beyond it idle handles that must be waited for
//   5. the same when all deferred frees are complete, waited for
//   6. the same with no more new memory than the driver says it has: somebody else may have taken
//      what the limit would allow
//   7. as 3, waited for
//   8. out of memory, with a report
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "allocator/base/check.h"
#include "allocator/pool/device_heap.h"
#include "allocator/pool/stats.h"
#include "allocator/vmm/map_executor.h"

namespace weir {

namespace {

// The rung found no memory; the next one may. (A capture forbids proofs that it could have used.)
bool IsShortage(const DriverStatus& status) {
  return status.ok() || status.is_out_of_memory() ||
         status.error_class() == DriverErrorClass::kCaptureViolation;
}

}  // namespace

std::vector<StreamHeap*> DeviceHeap::Streams() {
  MutexLock lock(heap_mu_);
  std::vector<StreamHeap*> streams;
  streams.reserve(streams_.size());
  for (const auto& stream : streams_) streams.push_back(stream.get());
  return streams;
}

// ---- The rungs ----------------------------------------------------------------------------------

uint64_t DeviceHeap::AllocateMiss(StreamKey key, Request request, HeapError* error) {
  MutexLock space(space_mu_);  // from here on the stream's heap stays what it is
  StreamHeap* owner = StreamFor(key, error);
  if (owner == nullptr) return 0;
  const CallSeries series(*driver_);
  context_is_captured_.reset();
  DriverStatus status = CompleteDeferred(/*wait=*/false);
  if (status.is_fatal()) {
    *error = DriverFailure(status);
    return 0;
  }
  {
    MutexLock lock(heap_mu_);
    ++stats_.misses;
    NoteContext(owner, &request);
    FlushCaches();
    if (const uint64_t address = TryAllocate(owner, request)) return address;
  }
  if (options_.borrow == Borrowing::kSmall && request.block <= kMaxSmallArenaBytes) {
    if (const uint64_t address = Borrow(owner, request, /*may_wait=*/false, &status))
      return address;
  }
  Rung rungs[] = {{.within_soft_limit = true, .may_wait = false},
                  {.within_soft_limit = true, .may_wait = true},
                  {.within_soft_limit = false, .may_wait = true},
                  {.within_soft_limit = false, .may_wait = true}};
  for (Rung& rung : rungs) {
    if (&rung == &rungs[1]) {
      if (const uint64_t address = Borrow(owner, request, /*may_wait=*/false, &status))
        return address;
      if (status.is_fatal()) break;
    }
    if (!rung.within_soft_limit) {
      if (status = CompleteDeferred(/*wait=*/true); status.is_fatal()) break;
      MutexLock lock(heap_mu_);
      FlushCaches();  // of what was freed while the host waited
      if (const uint64_t address = TryAllocate(owner, request)) return address;
    }
    if (&rung == &rungs[3]) {
      uint64_t total_bytes = 0;
      if (!driver_->MemGetInfo(&rung.most_new, &total_bytes).ok()) rung.most_new = 0;
    }
    const bool mapping = driver_->has_vmm();
    uint64_t address = mapping ? MapAndAllocate(owner, request, rung, &status)
                               : SegmentAndAllocate(owner, request, rung, &status);
    if (address == 0 && mapping && !driver_->has_vmm()) {  // it has just been switched off
      address = SegmentAndAllocate(owner, request, rung, &status);
    }
    if (address != 0) return address;
    if (!IsShortage(status)) break;
  }
  if (IsShortage(status)) {
    if (const uint64_t address = Borrow(owner, request, /*may_wait=*/true, &status)) return address;
  }
  *error = IsShortage(status) ? OutOfMemory(request) : DriverFailure(status);
  return 0;
}

HeapError DeviceHeap::DriverFailure(const DriverStatus& status) const {
  return HeapError(WEIR_ERROR_DRIVER,
                   absl::StrCat("device ", driver_->ordinal(), ": ", status.ToString()));
}

HeapError DeviceHeap::OutOfMemory(const Request& request) {
  uint64_t free_bytes = 0, total_bytes = 0;
  const bool known = driver_->MemGetInfo(&free_bytes, &total_bytes).ok();
  MutexLock lock(heap_mu_);
  ++stats_.out_of_memory;
  ReclaimRooms();
  std::string text = absl::StrCat(
      "device ", driver_->ordinal(), " is out of memory: ", request.bytes,
      " bytes asked; Weir holds ", stats_.reserved_bytes, " (", stats_.active_bytes, " in use, ",
      stats_.reserved_bytes - stats_.active_bytes, " in pieces that do not fit)");
  if (known) absl::StrAppend(&text, ", the driver has ", free_bytes, " of ", total_bytes, " free");
  if (stats_.memory_limit != UINT64_MAX)
    absl::StrAppend(&text, ", the limit is ", stats_.memory_limit);
  return HeapError(WEIR_ERROR_OUT_OF_MEMORY, std::move(text));
}

// ---- Time ---------------------------------------------------------------------------------------

bool DeviceHeap::ContextIsCaptured() {
  // While requests are routed to a pool, a stream that was never seen here may be under capture.
  if (has_routes_.load(std::memory_order_relaxed)) return true;
  if (context_is_captured_.has_value()) return *context_is_captured_;
  std::vector<Stream> streams{nullptr};  // the legacy stream stands for every blocking stream
  for (StreamHeap* s : Streams()) {
    if (s->timeline.kind() == StreamTimeline::Kind::kStream)
      streams.push_back(s->timeline.stream());
  }
  context_is_captured_ = std::any_of(streams.begin(), streams.end(), [this](Stream stream) {
    bool capturing = false;
    const DriverStatus status = driver_->IsCapturing(stream, &capturing);
    // A stream that is gone is not captured; one that cannot be asked may be.
    return status.ok() ? capturing : status.error_class() != DriverErrorClass::kMisuse;
  });
  return *context_is_captured_;
}

bool DeviceHeap::LostItsStream(StreamTimeline* timeline, const DriverStatus& status) {
  if (status.error_class() != DriverErrorClass::kMisuse ||
      timeline->kind() != StreamTimeline::Kind::kStream) {
    return false;
  }
  timeline->BecomeContext();
  return true;
}

DriverStatus DeviceHeap::CloseEpoch(StreamTimeline* timeline) {
  if (timeline->kind() == StreamTimeline::Kind::kContext && ContextIsCaptured()) return {};
  const DriverStatus status = timeline->Close({*driver_, events_});
  return LostItsStream(timeline, status) ? CloseEpoch(timeline) : status;
}

DriverStatus DeviceHeap::WaitFor(StreamTimeline* timeline, Epoch epoch) {
  if (timeline->IsComplete(epoch)) return {};
  if (timeline->kind() == StreamTimeline::Kind::kContext && !timeline->HasMarkerFor(epoch) &&
      ContextIsCaptured()) {
    return DriverStatus::CaptureForbids("cuCtxRecordEvent");
  }
  const DriverStatus status = timeline->Wait({*driver_, events_}, epoch);
  if (LostItsStream(timeline, status)) return WaitFor(timeline, epoch);
  MutexLock lock(heap_mu_);
  ++stats_.waits;
  return status;
}

DriverStatus DeviceHeap::CompleteDeferred(bool wait) {
  DriverStatus status = CompleteOnce(wait);
  // A free that took effect may have made a borrowed block return, which waits once more.
  if (wait && !status.is_fatal()) status = CompleteOnce(wait);
  return status;
}

DriverStatus DeviceHeap::CompleteOnce(bool wait) {
  DriverStatus result;
  for (StreamHeap* stream : Streams()) {
    StreamTimeline& timeline = stream->timeline;
    Epoch last = 0;
    {
      MutexLock lock(heap_mu_);
      if (timeline.has_deferred()) last = timeline.last_deferred_epoch();
      if (stream->returning != nullptr) last = std::max(last, stream->returning->return_epoch);
      if (last == 0) continue;
    }
    DriverStatus status;
    if (wait) {
      status = WaitFor(&timeline, last);
    } else {
      if (!timeline.HasMarkerFor(last)) status = CloseEpoch(&timeline);
      if (status.ok()) status = timeline.Poll({*driver_, events_});
    }
    if (!status.ok()) result = status;
    if (status.is_fatal()) return status;
  }
  MutexLock lock(heap_mu_);
  ReleaseComplete();
  return result;
}

void DeviceHeap::ReleaseComplete() {
  for (const auto& stream : streams_) {
    stream->timeline.TakeComplete([this](uint64_t address) {
      heap_mu_.AssertHeld();
      Block* block = PointerIndex::Get().Find(address);
      uint32_t object = 0;
      if (block->span != nullptr) {
        WEIR_CHECK(SpanLists::ObjectAt(*block->span, address, &object));
      }
      Release({block, object});
    });
  }
  TakeReturned();
}

DriverStatus DeviceHeap::ProveIdle() {
  for (StreamHeap* stream : Streams()) {
    bool needed = false, open = false;
    StreamTimeline& timeline = stream->timeline;
    {
      MutexLock lock(heap_mu_);
      for (const Handle* h : handles_.all()) {
        if (!h->is_idle() || !IsSupply(*h)) continue;
        for (const Mapping* m = h->mappings; m != nullptr; m = m->next) {
          if (m->arena->owner() != stream) continue;
          needed |= !timeline.IsComplete(m->idle_epoch);
          open |= m->idle_epoch == timeline.open();
        }
      }
    }
    if (!needed) continue;
    DriverStatus status;
    if (open) status = CloseEpoch(&timeline);
    if (status.ok()) status = timeline.Poll({*driver_, events_});
    if (status.is_fatal()) return status;
  }
  return {};
}

}  // namespace weir
