// DeviceHeap: pools whose memory is segments of a source of their own, or segments of the driver
// that are not split; and what pools give back.
//
// A source is a function of the program that may call Weir, so it runs without any lock: a miss
// calls it between two looks under the locks, and segments that leave are only noted under the
// locks (leaving_) and given back when these are free. Each is noted once.
#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "allocator/pool/device_heap.h"
#include "allocator/pool/stats.h"
#include "allocator/vmm/remap_observers.h"

namespace weir {
namespace {

// What sources see as the stream of memory for any stream.
weir_stream_t ForSource(Stream stream) { return stream == kAnyStream ? nullptr : stream; }

}  // namespace

// ---- Misses of pools with a source --------------------------------------------------------------

std::shared_ptr<CapturePool> HeapState::PoolWithSource(uint64_t id) {
  MutexLock lock(heap_mu_);
  HeapError gone;
  std::shared_ptr<CapturePool> pool = FindPool(id, &gone);
  return pool != nullptr && pool->has_source() ? pool : nullptr;
}

uint64_t DeviceHeap::ClimbToSource(const std::shared_ptr<CapturePool>& pool, StreamKey key,
                                   Request* request, Ladder* ladder, HeapError* error) {
  for (const bool last : {false, true}) {
    SourceStep step;
    const uint64_t address = PrepareSegment(pool, key, *request, last, ladder, &step, error);
    GiveBackToSources();
    if (step.released) return Climb(key, request, ladder, error);
    if (address != 0 || !error->ok()) return address;
    const uint64_t bytes = step.bytes;
    if (step.room < bytes) continue;
    const auto at = [&] {
      const InsideSource inside;
      return reinterpret_cast<uintptr_t>(
          pool->allocate(bytes, driver_->ordinal(), ForSource(key.stream), pool->user));
    }();
    ladder->Gain(LadderRung::kMap, at == 0 ? 0 : bytes);
    ladder->source_refused = at == 0;
    ladder->missing = bytes;
    if (at == 0) continue;
    return TakeSegment(pool, key, request, {at, bytes}, ladder, error);
  }
  error->code = WEIR_ERROR_OUT_OF_MEMORY;
  return 0;
}

uint64_t DeviceHeap::PrepareSegment(const std::shared_ptr<CapturePool>& pool, StreamKey key,
                                    const Request& request, bool last, Ladder* ladder,
                                    SourceStep* step, HeapError* error) {
  MutexLock space(space_mu_);
  StreamHeap* owner = StreamFor(key, error);
  if (owner == nullptr) return 0;
  step->released = owner->pool != pool;
  if (step->released) return 0;
  const CallSeries series(*driver_);
  context_is_captured_.reset();
  const bool wait = last && options_.ladder.wait;
  {
    MutexLock lock(heap_mu_);
    if (!last && !(*ladder)[LadderRung::kCallbacks].tried) ++stats_.misses;
    ladder->waits_before = stats_.waits;
    ladder->reserved_before = stats_.reserved_bytes;
  }
  if (const DriverStatus status = CompleteDeferred(wait); status.is_fatal()) {
    *error = DriverFailure(status);
    return 0;
  }
  uint64_t address = 0;
  {
    MutexLock lock(heap_mu_);
    ladder->Gain(wait ? LadderRung::kWait : LadderRung::kComplete, 0);
    address = TryAllocate(owner, request);
  }
  if (address != 0) return Served(LadderRung::kComplete, *ladder, address);
  if (last) {  // what the source, or a limit, may want back before there is more
    const auto status =
        ReleaseIdleOf([&](const StreamHeap& stream) { return stream.pool == pool; }, wait);
    if (status.is_fatal()) {
      *error = DriverFailure(status);
      return 0;
    }
  }
  MutexLock lock(heap_mu_);
  const uint64_t limit = stats_.memory_limit;
  const uint64_t below_limit = limit - std::min<uint64_t>(limit, stats_.reserved_bytes);
  const uint64_t in_pool = PoolRoom(owner);
  step->bytes = SegmentBytes(*owner, request);
  step->room = std::min(below_limit, in_pool);
  ladder->missing = step->bytes - std::min(step->bytes, step->room);
  ladder->missing_in_pool = step->bytes - std::min(step->bytes, in_pool);
  return 0;
}

uint64_t DeviceHeap::TakeSegment(const std::shared_ptr<CapturePool>& pool, StreamKey key,
                                 Request* request, AddressRange segment, Ladder* ladder,
                                 HeapError* error) {
  const LeavingSegment leaving{pool, segment.begin, segment.bytes, key.stream};
  bool told = false, installed = false;
  try {
    MutexLock space(space_mu_);
    StreamHeap* owner = StreamFor(key, error);
    if (owner != nullptr && owner->pool == pool) {
      Block* outer = nullptr;
      *error = CheckSegment(segment, &outer);
      if (error->ok()) {
        if (!PointerIndex::Get().Cover(segment.begin, segment.bytes)) throw std::bad_alloc();
        RemapObservers::Get().Tell(driver_->ordinal(), segment.begin, segment.bytes,
                                   WEIR_REMAP_AFTER_MAP);
        told = true;
        uint64_t address = 0;
        {
          MutexLock lock(heap_mu_);
          InstallSegment(&owner->ArenaFor(request->block), segment, outer);
          installed = true;  // from here on it leaves as other segments do
          address = TryAllocate(owner, *request);
        }
        if (address != 0) return Served(LadderRung::kMap, *ladder, address);
        error->code = WEIR_ERROR_OUT_OF_MEMORY;  // what it has given is not aligned enough
        return 0;
      }
    }
  } catch (const std::bad_alloc&) {
    if (installed) throw;
    if (told) {
      MutexLock space(space_mu_);
      RemapObservers::Get().Tell(driver_->ordinal(), segment.begin, segment.bytes,
                                 WEIR_REMAP_BEFORE_UNMAP);
    }
    GiveBack(leaving);
    throw;
  }
  const bool is_twice = error->code == WEIR_ERROR_NOT_OWNED;
  if (is_twice) error->code = WEIR_ERROR_INVALID_ARGUMENT;  // it has no second one to get back
  if (!is_twice) GiveBack(leaving);
  return error->ok() ? Climb(key, request, ladder, error) : 0;  // the pool was released meanwhile
}

HeapError HeapState::CheckSegment(AddressRange segment, Block** outer) {
  const uint64_t at = segment.begin, end = at + segment.bytes;
  const auto refuse = [&](weir_status_t code, const char* why) {
    return HeapError(code, absl::StrCat("the source of a pool on device ", driver_->ordinal(),
                                        " returned 0x", absl::Hex(at), ", ", why));
  };
  if (!IsAligned(at, kBlockAlignment)) {
    return refuse(WEIR_ERROR_INVALID_ARGUMENT, "which is not aligned to 512 bytes");
  }
  MutexLock lock(heap_mu_);
  for (const Handle* h : handles_.all()) {
    if (!IsOfSource(*h) || h->at() >= end || h->at() + h->bytes <= at) continue;
    return refuse(WEIR_ERROR_NOT_OWNED, "which it has given before and not got back yet");
  }
  // Memory that it has allocated with Weir is part of one block.
  Block* around = PointerIndex::Get().Find(at);
  *outer = around;
  if (around == nullptr && at - reservation_begin_ < reservation_bytes_) {
    around = PointerIndex::Get().FindContaining(at);
  }
  if (around == nullptr) return {};
  const bool is_own = std::any_of(streams_.begin(), streams_.end(), [&](const auto& stream) {
    return stream.get() == around->arena->owner();
  });
  if (!is_own || around->state != BlockState::kLive || around->span != nullptr ||
      around->requested.load() == Block::kNotHeld || end > around->end()) {
    return refuse(WEIR_ERROR_INVALID_ARGUMENT, "which is memory of Weir, but not of one block");
  }
  return {};
}

// ---- What goes back -----------------------------------------------------------------------------

void HeapState::GiveBack(const LeavingSegment& segment) const {
  const InsideSource inside;
  segment.pool->deallocate(reinterpret_cast<void*>(segment.at), segment.bytes, driver_->ordinal(),
                           ForSource(segment.stream), segment.pool->user);
}

void HeapState::GiveBackToSources() {
  std::vector<LeavingSegment> segments;
  {
    MutexLock lock(heap_mu_);
    segments.swap(leaving_);
  }
  for (const LeavingSegment& segment : segments) GiveBack(segment);
}

DriverStatus DeviceHeap::ReleaseIdleOf(const std::function<bool(const StreamHeap&)>& is_meant,
                                       bool may_wait) {
  std::vector<Handle*> idle;
  {
    MutexLock lock(heap_mu_);
    FlushKept();
    for (Handle* h : handles_.all()) {
      if (!h->is_idle() || h->taken || h->arena() == nullptr || h->pins > 0 || h->stuck.load())
        continue;
      if (is_meant(*h->arena()->owner()) && (may_wait || IsComplete(*h))) idle.push_back(h);
    }
  }
  DriverStatus result;
  for (Handle* h : idle) {
    DriverStatus status = ReleaseHandle(h);
    if (!status.ok()) result = status;
    if (status.is_fatal()) break;
  }
  return result;
}

DriverStatus DeviceHeap::ReleaseLeaving(bool may_wait) {
  std::vector<StreamHeap*> streams;
  {
    MutexLock lock(heap_mu_);
    for (const auto& stream : streams_) {
      if (stream->is_leaving()) streams.push_back(stream.get());
    }
    if (streams.empty()) return {};
    FlushKept();
  }
  for (StreamHeap* stream : streams) {
    StreamTimeline& timeline = stream->timeline;
    bool needed = false, open = false;
    {
      MutexLock lock(heap_mu_);
      for (const Handle* h : handles_.all()) {
        if (!h->is_idle() || h->arena() == nullptr || h->arena()->owner() != stream) continue;
        needed |= !timeline.IsComplete(h->mappings->idle_epoch);
        open |= h->mappings->idle_epoch == timeline.open();
      }
    }
    if (!needed || may_wait) continue;
    if (DriverStatus status = Ask(&timeline, /*close=*/open); status.is_fatal()) return status;
  }
  const DriverStatus status =
      ReleaseIdleOf([](const StreamHeap& stream) { return stream.is_leaving(); }, may_wait);
  MutexLock lock(heap_mu_);
  DeleteUnusedStreams();
  return status;
}

bool DeviceHeap::GiveBackLeaving(bool may_wait) {
  uint64_t before = 0, after = 0;
  {
    MutexLock space(space_mu_);
    {
      MutexLock lock(heap_mu_);
      const bool any = std::any_of(streams_.begin(), streams_.end(),
                                   [](const auto& stream) { return stream->is_leaving(); });
      if (!any) return false;
    }
    const auto reserved = [this] {
      MutexLock lock(heap_mu_);
      return stats_.reserved_bytes;
    };
    const CallSeries series(*driver_);
    context_is_captured_.reset();
    before = reserved();
    if (!CompleteDeferred(may_wait).is_fatal()) ReleaseLeaving(may_wait).IgnoreError();
    after = reserved();
  }
  GiveBackToSources();
  return after < before;
}

HeapError DeviceHeap::EmptyPool(uint64_t id) {
  if (HeapError error = CheckNotObserving(); !error.ok()) return error;
  DriverStatus status;
  {
    MutexLock space(space_mu_);
    {
      MutexLock lock(heap_mu_);
      if (HeapError error; id > newest_pool_) return FindPool(id, &error), error;
    }
    const CallSeries series(*driver_);
    context_is_captured_.reset();
    const auto is_meant = [id](const StreamHeap& stream) {
      return stream.pool != nullptr && stream.pool->id == id;
    };
    status = CompleteDeferred(/*wait=*/true);
    if (!status.is_fatal()) {
      const DriverStatus released = ReleaseIdleOf(is_meant, /*may_wait=*/true);
      if (!released.ok()) status = released;
      MutexLock lock(heap_mu_);
      DeleteUnusedStreams();
    }
  }
  GiveBackToSources();
  const bool failed = !status.ok() && status.error_class() != DriverErrorClass::kCaptureViolation;
  return failed ? DriverFailure(status) : HeapError();
}

// ---- Pools that lend ----------------------------------------------------------------------------

uint64_t DeviceHeap::TakeFromPools(StreamHeap* owner, const Request& request, Rung* rung,
                                   DriverStatus* status) {
  const bool may_wait = options_.ladder.wait;
  std::vector<StreamHeap*> lenders;
  {
    MutexLock lock(heap_mu_);
    for (const auto& stream : streams_) {
      if (stream->may_lend()) lenders.push_back(stream.get());
    }
  }
  if (lenders.empty() || owner->key.pool != 0) return 0;
  for (const BorrowOrder order :
       {BorrowOrder::kNothing, BorrowOrder::kAsk, BorrowOrder::kHostWait}) {
    if (order == BorrowOrder::kHostWait && !may_wait) continue;
    for (StreamHeap* lender : lenders) {
      for (Arena* arena : {&lender->small, &lender->large}) {
        const uint64_t address = BorrowFrom(arena, owner, request, order, status);
        if (address != 0 || status->is_fatal()) return address;
      }
    }
  }
  const auto lend = [this](bool value) {
    MutexLock lock(heap_mu_);
    pools_lend_ = value;
  };
  lend(true);
  uint64_t address = 0;
  try {
    address = MakeAndAllocate(owner, request, rung, status);
  } catch (const std::bad_alloc&) {
    lend(false);
    throw;
  }
  lend(false);
  return address;
}

}  // namespace weir
