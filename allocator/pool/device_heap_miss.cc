// DeviceHeap: what happens when no free block fits. The rungs, each followed by another look:
//
//   1. frees whose markers are complete, and what lies in thread caches
//   2. spares; new memory within the soft limit; beyond it idle complete handles from anywhere;
//      where these are not enough, new memory up to the hard limit, or what the driver has if that
//      is less: somebody else may have taken it
//   3. free blocks of other streams in granules that are partly in use, borrowed
//   4. as 2, and beyond it idle handles that must be waited for
//   5. deferred frees, waited for one marker after the other, the oldest first; after each 1 and 4
//   6. as 3, waited for
//   7. granules that are partly in use, merged, as many as are missing (device_heap_mesh.cc)
//   8. idle memory of pools that may lend it (device_heap_sources.cc)
//   9. callbacks of the program; after each one that has freed something all of the above
//      (device_heap_ladder.cc)
//  10. out of memory, with a report (device_heap_report.cc)
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

uint64_t DeviceHeap::Climb(StreamKey key, Request* noted, Ladder* ladder, HeapError* error) {
  if (key.pool != 0) {
    if (const auto pool = PoolWithSource(key.pool))
      return ClimbToSource(pool, key, noted, ladder, error);
  }
  MutexLock space(space_mu_);  // from here on the stream's heap stays what it is
  StreamHeap* owner = StreamFor(key, error);
  if (owner == nullptr) return 0;
  if (owner->replay == nullptr) noted->context = {};  // a callback has ended the stream or pool
  const Request& request = *noted;
  const CallSeries series(*driver_);
  context_is_captured_.reset();
  LookForHolders();
  const bool may_wait = options_.ladder.wait, may_borrow = options_.ladder.borrow;
  uint64_t newest_deferred = 0, active_before = 0;
  {
    MutexLock lock(heap_mu_);
    newest_deferred = stats_.deferred_frees;
    active_before = stats_.active_bytes;
    ladder->waits_before = stats_.waits;
    ladder->reserved_before = stats_.reserved_bytes;
  }
  DriverStatus status = CompleteDeferred(/*wait=*/false);
  if (status.is_fatal()) {
    *error = DriverFailure(status);
    return 0;
  }
  UnmapDeadGuests().IgnoreError();  // they only cost address space
  // After a rung that may have made memory free.
  const auto look_again = [&](LadderRung rung) {
    space_mu_.AssertHeld();
    uint64_t address = 0, cached = 0;
    {
      MutexLock lock(heap_mu_);
      const uint64_t active = stats_.active_bytes;
      ladder->Gain(rung, active_before > active ? active_before - active : 0);
      cached = FlushCaches();
      ladder->Gain(LadderRung::kCaches, cached);
      active_before = stats_.active_bytes;
      address = TryAllocate(owner, request);
    }
    return address == 0 ? 0 : Served(cached > 0 ? LadderRung::kCaches : rung, *ladder, address);
  };
  const auto borrow = [&](bool waiting) {
    space_mu_.AssertHeld();
    ladder->Gain(LadderRung::kBorrow, 0);
    DriverStatus borrowed;
    const uint64_t address = Borrow(owner, request, waiting, &borrowed);
    if (waiting || borrowed.is_fatal()) status = borrowed;
    return address == 0 ? 0 : Served(LadderRung::kBorrow, *ladder, address);
  };
  Rung rung{.within_soft_limit = true, .may_wait = false};
  const auto make = [&] {
    space_mu_.AssertHeld();
    ladder->Gain(LadderRung::kMap, 0);
    const uint64_t address = MakeAndAllocate(owner, request, &rung, &status);
    return address == 0 ? 0 : Served(LadderRung::kMap, *ladder, address);
  };

  {
    MutexLock lock(heap_mu_);
    if (!(*ladder)[LadderRung::kCallbacks].tried) ++stats_.misses;
    NoteContext(owner, noted);
  }
  if (const uint64_t address = look_again(LadderRung::kComplete)) return address;
  if (may_borrow && options_.borrow == Borrowing::kSmall && request.block <= kMaxSmallArenaBytes) {
    if (const uint64_t address = borrow(/*waiting=*/false)) return address;
  }
  if (const uint64_t address = make()) return address;
  if (IsShortage(status) && may_borrow) {
    if (const uint64_t address = borrow(/*waiting=*/false)) return address;
  }
  if (IsShortage(status) && may_wait) {
    rung.may_wait = true;
    if (const uint64_t address = make()) return address;
  }
  rung.within_soft_limit = false;
  std::vector<const StreamTimeline*> refused;
  while (IsShortage(status)) {
    if (const uint64_t address = make()) return address;
    if (!IsShortage(status) || !may_wait) break;
    DriverStatus waited;
    if (!WaitForOldest(newest_deferred, &refused, &waited)) {
      if (waited.is_fatal()) status = waited;
      break;
    }
    if (const uint64_t address = look_again(LadderRung::kWait)) return address;
  }
  if (IsShortage(status) && may_borrow && may_wait) {
    if (const uint64_t address = borrow(/*waiting=*/true)) return address;
  }
  const auto measure = [&] {
    space_mu_.AssertHeld();
    uint64_t total_bytes = 0;
    ladder->driver_known = driver_->MemGetInfo(&ladder->driver_free, &total_bytes).ok();
    ladder->captured = ContextIsCaptured();
    MutexLock lock(heap_mu_);
    CountMissing(owner, request, rung, ladder);
  };
  if (IsShortage(status)) measure();
  constexpr int kMostMerges = 3;
  const bool may_merge = options_.mesh == Meshing::kPressure && options_.ladder.mesh && may_wait;
  for (int i = 0; may_merge && i < kMostMerges && IsShortage(status) && ladder->missing > 0 &&
                  ladder->missing_in_pool == 0;
       ++i) {
    const uint64_t wanted = (ladder->missing + granule_ - 1) / granule_;
    const uint64_t merged = MergeGranules(wanted, UINT64_MAX, &status);
    ladder->Gain(LadderRung::kMesh, merged * granule_);
    if (merged == 0 || !IsShortage(status)) break;
    if (const uint64_t address = make()) return address;
    if (IsShortage(status)) measure();
  }
  if (may_merge && IsShortage(status) && ladder->missing_in_pool == 0) {
    rung.may_share = true;
    if (const uint64_t address = make()) return address;
  }
  if (IsShortage(status)) {
    if (const uint64_t address = TakeFromPools(owner, request, &rung, &status))
      return Served(LadderRung::kBorrow, *ladder, address);
  }
  if (!IsShortage(status)) {
    *error = DriverFailure(status);
    return 0;
  }
  error->code = WEIR_ERROR_OUT_OF_MEMORY;
  return 0;
}

uint64_t DeviceHeap::MakeAndAllocate(StreamHeap* owner, const Request& request, Rung* rung,
                                     DriverStatus* status) {
  while (driver_->has_vmm() && !owner->has_segments()) {
    const uint64_t address = MapAndAllocate(owner, request, *rung, status);
    if (address != 0) return address;
    if (!driver_->has_vmm()) break;  // it has just been switched off
    if (!status->is_out_of_memory() || rung->most_new == 0) return 0;
    // Somebody else has taken what the limits allow: no more than the driver says it has, and
    // nothing if it does not give that either.
    uint64_t free_bytes = 0, total_bytes = 0;
    const bool known =
        rung->most_new == UINT64_MAX && driver_->MemGetInfo(&free_bytes, &total_bytes).ok();
    rung->most_new = known ? free_bytes : 0;
  }
  return SegmentAndAllocate(owner, request, *rung, status);
}

HeapError DeviceHeap::DriverFailure(const DriverStatus& status) const {
  return HeapError(WEIR_ERROR_DRIVER,
                   absl::StrCat("device ", driver_->ordinal(), ": ", status.ToString()));
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

DriverStatus DeviceHeap::Ask(StreamTimeline* timeline, bool close) {
  DriverStatus status;
  if (close) status = CloseEpoch(timeline);
  return status.ok() ? timeline->Poll({*driver_, events_}) : status;
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
      status = Ask(&timeline, /*close=*/!timeline.HasMarkerFor(last));
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
    if (DriverStatus status = Ask(&timeline, /*close=*/open); status.is_fatal()) return status;
  }
  return {};
}

}  // namespace weir
