// DeviceHeap: its blocks and segments as others see them (weir/inspect.h).
//
// A block is shown where its memory is its own: holes have none, and memory with several addresses
// (block.h, Note [Aliases]) is shown where it is in use, or at its first mapping. What is left of
// a block after that are its *parts*; the parts of an arena that touch are one segment.
#include <algorithm>
#include <type_traits>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "allocator/pool/device_heap.h"
#include "allocator/pool/inspection.h"

namespace weir {
namespace {

static_assert(std::is_same_v<weir_stream_t, Stream>);

// Calls fn(begin, end) for each part of a block, in address order; they do not touch.
template <typename Fn>
void ForEachPart(const Block& b, Fn fn) {
  switch (b.state) {
    case BlockState::kHole:
    case BlockState::kShadow:
    case BlockState::kLent:
    case BlockState::kBlocked:
      return;
    case BlockState::kLive:
    case BlockState::kDeferred:
    case BlockState::kReturning:
    case BlockState::kKept:
      fn(b.begin, b.end());
      return;
    case BlockState::kReady:
    case BlockState::kBusy:  // lost (DeviceHeap::Commit), or a miss has it just now
      break;
  }
  uint64_t begin = 0, end = 0;
  Arena::ForEachMapping(b.begin, b.end(), b.segment, [&](const Mapping* m) {
    if (m != m->handle->mappings) return;
    const uint64_t from = std::max(b.begin, m->at), to = std::min(b.end(), m->at + m->bytes);
    if (from != end) {
      if (begin < end) fn(begin, end);
      begin = from;
    }
    end = to;
  });
  if (begin < end) fn(begin, end);
}

using PendingSizes = std::unordered_map<uint64_t, uint64_t>;  // by address

uint64_t SizeOfPending(const PendingSizes& sizes, uint64_t address) {
  const auto found = sizes.find(address);
  return found != sizes.end() ? found->second : 0;
}

weir_block_info_t FreePart(const Block& b, uint64_t begin, uint64_t end) {
  return {begin, end - begin, 0, b.arena->owner()->key.stream, WEIR_BLOCK_FREE, 0};
}

// Of a block that is not cut into objects; its part of those bytes.
weir_block_info_t Describe(const Block& b, uint64_t begin, uint64_t end,
                           const PendingSizes& pending) {
  weir_block_info_t info = FreePart(b, begin, end);
  const uint64_t requested = b.requested.load();
  if (b.state == BlockState::kDeferred) {
    info.state = WEIR_BLOCK_PENDING;
    info.requested_bytes = SizeOfPending(pending, b.begin);
  } else if (b.state == BlockState::kLive && requested != Block::kNotHeld) {
    info.state = WEIR_BLOCK_ALLOCATED;
    info.requested_bytes = requested & ~Block::kHasUses;
  }
  if (info.state != WEIR_BLOCK_FREE) info.stream = b.owner->key.stream;
  return info;
}

weir_block_info_t DescribeObject(const Span& span, uint32_t object, const PendingSizes& pending) {
  const uint64_t begin = span.begin + uint64_t{object} * span.object_bytes;
  weir_block_info_t info = FreePart(*span.block, begin, begin + span.object_bytes);
  if (span.Test(span.deferred, object)) {
    info.state = WEIR_BLOCK_PENDING;
    info.requested_bytes = SizeOfPending(pending, begin);
  } else if (span.held[object].load() != Span::kNotHeld) {
    info.state = WEIR_BLOCK_ALLOCATED;
    info.requested_bytes = Found{span.block, object}.requested();
  }
  if (info.state != WEIR_BLOCK_FREE) info.stream = span.block->owner->key.stream;
  return info;
}

// Calls fn(info) for what a part of a block shows: itself, or its objects and what they leave.
template <typename Fn>
void ForEachShown(const Block& b, uint64_t begin, uint64_t end, const PendingSizes& pending,
                  Fn fn) {
  const Span* span = b.span;
  if (span == nullptr) {
    fn(Describe(b, begin, end, pending));
    return;
  }
  for (uint32_t i = 0; i < span->objects; ++i) fn(DescribeObject(*span, i, pending));
  const uint64_t rest = span->begin + uint64_t{span->objects} * span->object_bytes;
  if (rest < end) fn(FreePart(b, rest, end));
}

weir_segment_info_t DescribeSegment(const Block& b, uint64_t begin, int device) {
  weir_segment_info_t info = {};
  const StreamHeap& owner = *b.arena->owner();
  info.address = begin;
  info.stream = owner.key.stream;
  info.pool = owner.key.pool;
  info.device = device;
  info.is_large = b.arena->is_large() ? 1 : 0;
  info.is_mapped = b.segment == nullptr ? 1 : 0;
  return info;
}

// The first part of the block and the last, for segments that go on there; 0, 0: it has none.
struct Parts {
  uint64_t first_begin = 0, first_end = 0, last_begin = 0, last_end = 0;
};
Parts PartsOf(const Block& b) {
  Parts parts;
  ForEachPart(b, [&](uint64_t begin, uint64_t end) {
    if (parts.last_end == 0) parts.first_begin = begin, parts.first_end = end;
    parts.last_begin = begin;
    parts.last_end = end;
  });
  return parts;
}

// The run of parts around one of `block`.
AddressRange SegmentAround(const Block& block, uint64_t begin, uint64_t end) {
  const Block* b = &block;
  while (begin == b->begin && b->prev != nullptr) {
    const Parts parts = PartsOf(*b->prev);
    if (parts.last_end != begin) break;
    b = b->prev;
    begin = parts.last_begin;
  }
  b = &block;
  while (end == b->end() && b->next != nullptr) {
    const Parts parts = PartsOf(*b->next);
    if (parts.last_end == 0 || parts.first_begin != end) break;
    b = b->next;
    end = parts.first_end;
  }
  return {begin, end - begin};
}

}  // namespace

HeapError DeviceHeap::Inspect(Inspection* inspection) {
  if (HeapError error = CheckNotObserving(); !error.ok()) return error;
  MutexLock space(space_mu_);  // no change of the mapping is under way
  MutexLock lock(heap_mu_);
  const CacheVisit visit(caches_);
  const PendingSizes pending = GatherPending();
  for (const auto& stream : streams_) {
    for (const Arena* arena : {&stream->small, &stream->large}) {
      uint64_t segment_end = 0;
      arena->ForEachBlock([&](const Block& b) {
        if (b.prev == nullptr) segment_end = 0;  // another region
        ForEachPart(b, [&](uint64_t begin, uint64_t end) {
          if (begin != segment_end) {
            inspection->BeginSegment(DescribeSegment(b, begin, driver_->ordinal()));
          }
          segment_end = end;
          ForEachShown(b, begin, end, pending,
                       [&](const weir_block_info_t& info) { inspection->AddBlock(info); });
        });
      });
    }
  }
  return {};
}

HeapState::PendingSizes HeapState::GatherPending() {
  PendingSizes pending;
  for (const auto& stream : streams_) {
    stream->timeline.ForEachDeferred(
        [&](const DeferredFree& free) { pending[free.address] = free.requested; });
  }
  return pending;
}

HeapError DeviceHeap::FindBlock(uint64_t address, weir_block_info_t* block,
                                weir_segment_info_t* segment) {
  MutexLock lock(heap_mu_);
  bool found = false;
  if (const Block* b = BlockAround(address)) {
    const bool has_pending =
        b->state == BlockState::kDeferred || (b->span != nullptr && b->span->CountDeferred() > 0);
    const PendingSizes pending = has_pending ? GatherPending() : PendingSizes();
    ForEachPart(*b, [&](uint64_t begin, uint64_t end) {
      if (address - begin >= end - begin) return;
      found = true;
      ForEachShown(*b, begin, end, pending, [&](const weir_block_info_t& info) {
        if (block != nullptr && address - info.address < info.bytes) *block = info;
      });
      if (segment == nullptr) return;
      const AddressRange around = SegmentAround(*b, begin, end);
      *segment = DescribeSegment(*b, around.begin, driver_->ordinal());
      segment->bytes = around.bytes;
    });
  }
  if (found) return {};
  return {WEIR_ERROR_NOT_OWNED, absl::StrCat("there is no memory of Weir at 0x", absl::Hex(address),
                                             ", or it is in use elsewhere")};
}

const Block* HeapState::BlockAround(uint64_t address) {
  if (address - reservation_begin_ < reservation_bytes_)
    return PointerIndex::Get().FindContaining(address);
  const Mapping* mapping = MappingAt(address);  // a segment
  return mapping != nullptr ? mapping->arena->FindContaining(address) : nullptr;
}

}  // namespace weir
