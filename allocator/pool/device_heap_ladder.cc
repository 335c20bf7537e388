// DeviceHeap: the end of the ladder. Callbacks of the program, waiting for no more work than is
// needed, and how much is missing.
#include <algorithm>
#include <limits>
#include <new>
#include <optional>

#include "allocator/pool/device_heap.h"
#include "allocator/pool/memory_callbacks.h"

namespace weir {

uint64_t DeviceHeap::AllocateMiss(StreamKey key, Request request, HeapError* error) {
  if (*error = CheckNotObserving(); !error->ok()) return 0;
  Ladder ladder;
  uint64_t address = Climb(key, &request, &ladder, error);
  const auto is_short = [&] { return address == 0 && error->code == WEIR_ERROR_OUT_OF_MEMORY; };
  if (is_short() && GiveBackLeaving(options_.ladder.wait)) {
    *error = {};
    address = Climb(key, &request, &ladder, error);
  }
  if (is_short() && options_.ladder.callbacks) {
    address = AskCallbacks(key, &request, &ladder, error);
  }
  if (is_short()) *error = OutOfMemory(key, request, ladder);
  return address;
}

uint64_t DeviceHeap::AskCallbacks(StreamKey key, Request* request, Ladder* ladder,
                                  HeapError* error) {
  // Another round is worth while only if the one before has freed something: a callback that merely
  // says so must not keep the thread here for ever.
  uint64_t most_usable = UsableBytes(*ladder);
  bool climbed = true;  // since the last callback
  for (bool freed = true; freed;) {
    freed = false;
    const auto callbacks = MemoryCallbacks::Get().ForThisThread();
    for (const MemoryCallback& callback : *callbacks) {
      const uint64_t needed = ladder->missing > 0 ? ladder->missing : request->block;
      const uint64_t bytes = MemoryCallbacks::Call(callback, driver_->ordinal(), needed);
      ladder->Gain(LadderRung::kCallbacks, bytes);
      climbed = bytes > 0;
      if (!climbed) continue;
      *error = {};
      const uint64_t address = Climb(key, request, ladder, error);
      if (address != 0 || error->code != WEIR_ERROR_OUT_OF_MEMORY) return address;
      const uint64_t usable = UsableBytes(*ladder);
      freed |= usable > most_usable;
      most_usable = std::max(most_usable, usable);
    }
  }
  // One may have made room in ways that are not bytes that it freed, or not have said so.
  if (climbed) return 0;
  *error = {};
  return Climb(key, request, ladder, error);
}

uint64_t HeapState::HardLimit() {
  return std::min<uint64_t>(stats_.memory_limit, driver_->total_bytes() + source_bytes_);
}

uint64_t DeviceHeap::UsableBytes(const Ladder& ladder) {
  MutexLock lock(heap_mu_);
  ReclaimRooms();
  return ladder.driver_free + stats_.reserved_bytes - stats_.active_bytes;
}

uint64_t DeviceHeap::Served(LadderRung rung, const Ladder& ladder, uint64_t address) {
  CountServed(rung, ladder);
  ReleaseByPolicy();
  // A spare that was longer than what was missing is gone as a whole. The rest is kept, if
  // possible.
  if (options_.preallocate > 0) {
    try {
      (void)MakeSpares(std::min(options_.preallocate, ladder.reserved_before));
    } catch (const std::bad_alloc&) {
    }
  }
  return address;
}

void DeviceHeap::CountServed(LadderRung rung, const Ladder& ladder) {
  MutexLock lock(heap_mu_);
  if (stats_.waits > ladder.waits_before) rung = LadderRung::kWait;
  if (ladder[LadderRung::kMesh].gained > 0) rung = LadderRung::kMesh;
  if (ladder[LadderRung::kCallbacks].tried) rung = LadderRung::kCallbacks;
  switch (rung) {
    case LadderRung::kComplete:
    case LadderRung::kCaches:
      ++stats_.served_complete;
      break;
    case LadderRung::kMap:
      ++stats_.served_mapped;
      break;
    case LadderRung::kBorrow:
      ++stats_.served_borrowed;
      break;
    case LadderRung::kWait:
      ++stats_.served_waited;
      break;
    case LadderRung::kMesh:
      ++stats_.served_merged;
      break;
    case LadderRung::kCallbacks:
      ++stats_.served_callbacks;
      break;
  }
}

bool DeviceHeap::WaitForOldest(uint64_t newest, std::vector<const StreamTimeline*>* refused,
                               DriverStatus* status) {
  StreamTimeline* timeline = nullptr;
  Epoch epoch = 0;
  {
    MutexLock lock(heap_mu_);
    uint64_t oldest = std::numeric_limits<uint64_t>::max();
    for (const auto& stream : streams_) {
      StreamTimeline& t = stream->timeline;
      if (std::find(refused->begin(), refused->end(), &t) != refused->end()) continue;
      const bool defers = t.has_deferred() && t.oldest_deferred() < newest;
      // Borrowed blocks on their way back were freed before, but their age is not known.
      if (!defers && stream->returning == nullptr) continue;
      const uint64_t age = defers ? t.oldest_deferred() : newest;
      if (age >= oldest) continue;
      oldest = age;
      timeline = &t;
      epoch = defers ? t.oldest_deferred_epoch() : stream->returning->return_epoch;
    }
    if (timeline == nullptr) return false;
    if (oldest == newest) refused->push_back(timeline);  // once is enough
  }
  if (*status = WaitFor(timeline, epoch); !status->ok()) {
    refused->push_back(timeline);
    if (status->is_fatal()) return false;
  }
  *status = CompleteOnce(/*wait=*/false);  // others may have become complete meanwhile
  return !status->is_fatal();
}

void DeviceHeap::CountMissing(StreamHeap* owner, const Request& request, const Rung& rung,
                              Ladder* ladder) {
  FlushKept();
  // The driver does not always give what it says it has.
  const uint64_t driver_free =
      std::min(ladder->driver_known ? ladder->driver_free : UINT64_MAX, rung.most_new);
  const uint64_t room = RoomBelow(HardLimit(), driver_free);
  const Arena& arena = owner->ArenaFor(request.block);
  std::optional<Window> window;
  if (driver_->has_vmm() && !owner->has_segments())
    window = FindWindow(arena, request.block, request.alignment);
  const uint64_t needed =
      window.has_value() ? window->missing : AlignUp(request.block, PointerIndex::kGranule);
  uint64_t supply = 0;
  for (const Handle* h : handles_.all()) {
    if (!window.has_value() || !h->is_idle() || h->taken || !IsSupply(*h)) continue;
    if (h->IsMappedIn(window->busy_begin, window->busy_end)) continue;
    const bool waits = options_.ladder.wait && (!ladder->captured || CanWaitInCapture(*h));
    if (IsComplete(*h) || waits) supply += h->bytes;
  }
  const uint64_t missing = needed > room + supply ? needed - room - supply : 0;
  const uint64_t pool_room = PoolRoom(owner);
  ladder->missing_in_pool = needed > pool_room ? needed - pool_room : 0;
  ladder->missing = std::max(missing, ladder->missing_in_pool);
}

}  // namespace weir
