// StreamHeap: the memory of one stream: its timeline, its two arenas, its spans.
//
// Memory that is freed on a stream is reused there in the stream's own order. What other streams
// get are wholly free handles whose work is complete: an idle granule of one arena is every other
// arena's supply.
#ifndef WEIR_POOL_STREAM_HEAP_H_
#define WEIR_POOL_STREAM_HEAP_H_

#include <cstdint>
#include <utility>

#include "allocator/block/arena.h"
#include "allocator/block/span.h"
#include "allocator/stream/timeline.h"

namespace weir {

// What a program means by a stream handle.
struct StreamKey {
  Stream stream;
  uint64_t thread;  // whose per-thread default stream it is; 0 for other streams

  friend bool operator==(const StreamKey&, const StreamKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const StreamKey& key) {
    return H::combine(std::move(h), key.stream, key.thread);
  }
};

class DeviceHeap;

struct StreamHeap {
  StreamHeap(DeviceHeap* device_heap, StreamTimeline::Kind kind, StreamKey stream_key,
             uint64_t granule, BlockPool* blocks)
      : heap(device_heap),
        key(stream_key),
        timeline(kind, stream_key.stream),
        small(granule, this, blocks),
        large(granule, this, blocks) {}

  Arena& ArenaFor(uint64_t bytes) { return bytes <= kMaxSmallArenaBytes ? small : large; }

  DeviceHeap* const heap;
  // Heap lock. Of kNoStream once the stream is destroyed: its handle may then mean another one.
  StreamKey key;
  StreamTimeline timeline;
  Arena small;  // spans, and blocks of up to 256 KiB
  Arena large;
  SpanLists spans;  // cut from blocks of `small`
};

}  // namespace weir

#endif  // WEIR_POOL_STREAM_HEAP_H_
