// StreamHeap: the memory of one stream: its timeline, its two arenas, its spans.
//
// Memory that is freed on a stream is reused there in the stream's own order. What other streams
// get are wholly free handles whose work is complete: an idle granule of one arena is every other
// arena's supply.
#ifndef WEIR_POOL_STREAM_HEAP_H_
#define WEIR_POOL_STREAM_HEAP_H_

#include "allocator/block/arena.h"
#include "allocator/block/span.h"
#include "allocator/stream/timeline.h"

namespace weir {

struct StreamHeap {
  StreamHeap(StreamTimeline::Kind kind, Stream stream, uint64_t granule, BlockPool* blocks)
      : timeline(kind, stream), small(granule, this, blocks), large(granule, this, blocks) {}

  Arena& ArenaFor(uint64_t bytes) { return bytes <= kMaxSmallArenaBytes ? small : large; }

  StreamTimeline timeline;
  Arena small;  // spans, and blocks of up to 256 KiB
  Arena large;
  SpanLists spans;  // cut from blocks of `small`
};

}  // namespace weir

#endif  // WEIR_POOL_STREAM_HEAP_H_
