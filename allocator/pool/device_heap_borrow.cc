// DeviceHeap: free memory that shares its granules with blocks in use, for another stream.
//
// Wholly free granules move between streams by the page table (device_heap_map.cc). What lies
// between blocks in use cannot: it would be an island that only its own stream can use. When memory
// is short such a block, or a span of small objects, is *borrowed*: it stays in the arena of its
// granules, but its owner is the borrower, in whose stream order it is used and cached. When it is
// freed it returns to the arena once the borrower's work is complete.
//
// The lender's stream may still be using the memory. If its markers do not say that it is complete,
// the stream that borrows a small block waits for them on the device. That makes one stream depend
// on another, so it comes after all that needs no wait, and the host waits only before the request
// would fail.
#include <new>

#include "allocator/pool/device_heap.h"

namespace weir {

uint64_t DeviceHeap::Borrow(StreamHeap* taker, const Request& request, bool may_wait,
                            DriverStatus* status) {
  if (options_.borrow == Borrowing::kNever || taker->key.pool != 0) return 0;
  for (const BorrowOrder order : {BorrowOrder::kNothing, BorrowOrder::kAsk,
                                  BorrowOrder::kStreamWait, BorrowOrder::kHostWait}) {
    if (order == BorrowOrder::kStreamWait && request.block > kMaxSmallArenaBytes) continue;
    if (order == BorrowOrder::kHostWait && !may_wait) continue;
    for (StreamHeap* lender : Streams()) {
      if (lender == taker || lender->key.pool != 0) continue;
      for (Arena* arena : {&lender->small, &lender->large}) {
        const uint64_t address = BorrowFrom(arena, taker, request, order, status);
        if (address != 0 || status->is_fatal()) return address;
      }
    }
  }
  return 0;
}

uint64_t DeviceHeap::BorrowFrom(Arena* arena, StreamHeap* taker, const Request& request,
                                BorrowOrder order, DriverStatus* status) {
  if (request.size_class >= 0 && arena->owner()->no_split()) {  // no span in a whole segment
    return BorrowFrom(arena, taker, MakeBlockRequest(request.bytes, kBlockAlignment), order,
                      status);
  }
  Block* block = nullptr;
  Epoch newest = 0;
  {
    MutexLock lock(heap_mu_);
    if (request.size_class >= 0) taker->spans.Reserve();
    arena->FlushKept();  // the epoch of the kept block is known to its handles only then
    block = arena->TryAllocate(request.block, request.alignment);
    if (block == nullptr) return 0;
    newest = Arena::NewestFree(*block);
  }
  // Nobody holds the block meanwhile, and no miss or trim runs.
  bool ordered = false;
  try {
    ordered = IsOrdered(arena->owner(), newest, taker, order, status);
  } catch (const std::bad_alloc&) {
    MutexLock lock(heap_mu_);
    arena->Free(block, /*epoch=*/0, /*keep=*/false);
    throw;
  }
  MutexLock lock(heap_mu_);
  if (!ordered) {
    arena->Free(block, /*epoch=*/0, /*keep=*/false);
    return 0;
  }
  block->owner = taker;
  ++taker->borrowed;
  ++stats_.borrowed_blocks;
  return Finish(taker, request, block);
}

bool DeviceHeap::IsOrdered(StreamHeap* lender, Epoch epoch, StreamHeap* taker, BorrowOrder order,
                           DriverStatus* status) {
  StreamTimeline& timeline = lender->timeline;
  if (timeline.IsComplete(epoch)) return true;
  if (order == BorrowOrder::kNothing) return false;
  if (*status = Ask(&timeline, /*close=*/!timeline.HasMarkerFor(epoch)); !status->ok())
    return false;
  if (timeline.IsComplete(epoch)) return true;
  if (order == BorrowOrder::kHostWait) {
    *status = WaitFor(&timeline, epoch);
    return status->ok();
  }
  if (order == BorrowOrder::kAsk || taker->timeline.kind() != StreamTimeline::Kind::kStream)
    return false;
  // An event from outside a capture must not enter it.
  bool capturing = false;
  *status = driver_->IsCapturing(taker->timeline.stream(), &capturing);
  if (!status->ok() || capturing) return false;
  return timeline.MakeStreamWait({*driver_, events_}, epoch, taker->timeline.stream(), status);
}

void DeviceHeap::ReturnBorrowed(Block* block, StreamHeap* borrower) {
  if (borrower->is_any()) {  // its frees take effect when all work is complete
    --borrower->borrowed;
    block->arena->Free(block, /*epoch=*/0, /*keep=*/false);
    return;
  }
  block->state = BlockState::kReturning;
  block->return_epoch = borrower->timeline.open();
  block->bin_next = borrower->returning;
  borrower->returning = block;
}

void DeviceHeap::TakeReturned() {
  for (const auto& stream : streams_) {
    // The epochs decrease along the list: from some block on all are complete.
    Block** link = &stream->returning;
    while (*link != nullptr && !stream->timeline.IsComplete((*link)->return_epoch)) {
      link = &(*link)->bin_next;
    }
    Block* complete = *link;
    *link = nullptr;
    while (Block* block = complete) {
      complete = block->bin_next;
      block->bin_next = nullptr;
      --stream->borrowed;
      block->arena->Free(block, /*epoch=*/0, /*keep=*/false);
    }
  }
}

}  // namespace weir
