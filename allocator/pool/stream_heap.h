// StreamHeap: the memory of one stream: its timeline, its two arenas, its spans.
//
// Memory that is freed on a stream is reused there in the stream's own order. What other streams
// get are wholly free handles whose work is complete: an idle granule of one arena is every other
// arena's supply.
#ifndef WEIR_POOL_STREAM_HEAP_H_
#define WEIR_POOL_STREAM_HEAP_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "allocator/block/arena.h"
#include "allocator/block/span.h"
#include "allocator/pool/capture_pool.h"
#include "allocator/pool/context_replay.h"
#include "allocator/pool/heap_error.h"
#include "allocator/stream/timeline.h"

namespace weir {

// For memory that may be used on any stream.
inline const Stream kAnyStream = reinterpret_cast<Stream>(~uintptr_t{0});
// A stream that no program has.
inline const Stream kNoStream = reinterpret_cast<Stream>(~uintptr_t{0} - 1);

// An error if it is no stream, or one of another device.
HeapError CheckStream(const DeviceDriver& driver, Stream stream);

// What a program means by a stream handle, and which pool serves it.
struct StreamKey {
  Stream stream;
  uint64_t thread = 0;  // whose per-thread default stream it is; 0 for other streams
  uint64_t pool = 0;    // id of a capture pool; 0: ordinary memory

  friend bool operator==(const StreamKey&, const StreamKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const StreamKey& key) {
    return H::combine(std::move(h), key.stream, key.thread, key.pool);
  }
};

struct StreamHeap {
  StreamHeap(StreamTimeline::Kind kind, StreamKey stream_key, uint64_t granule,
             HeapRecords* records, std::shared_ptr<CapturePool> of_pool = nullptr)
      : key(stream_key),
        pool(std::move(of_pool)),
        timeline(kind, stream_key.stream),
        small(granule, this, records),
        large(granule, this, records, /*is_large=*/true) {
    small.set_no_split(no_split());
    large.set_no_split(no_split());
  }

  // Without splitting, small segments serve what would have one of their size to itself.
  Arena& ArenaFor(uint64_t bytes) {
    return bytes <= (no_split() ? kMiB : kMaxSmallArenaBytes) ? small : large;
  }
  bool no_split() const { return pool != nullptr && pool->no_split; }
  // Whether its memory is classic segments, whatever the device can do.
  bool has_segments() const { return pool != nullptr && pool->has_segments(); }
  // Heap lock. Whether requests that are not of its pool may have what is idle here.
  bool may_lend() const { return pool != nullptr && pool->users > 0 && pool->use_on_oom; }
  // Heap lock. Whether its pool was released and must give what it has back to where it came from.
  bool is_leaving() const { return has_segments() && pool->users == 0; }

  // Whether another stream key means the same stream, whatever the pools.
  bool IsStream(const StreamKey& other) const {
    return key.stream == other.stream && key.thread == other.thread;
  }
  // A stream's own frees need a marker only when another stream wants them: it is recorded later
  // than for frees that wait.
  bool wants_marker(uint64_t marker_bytes) const { return unmarked_bytes >= 2 * marker_bytes; }
  // Whether it serves memory that any stream may use.
  bool is_any() const { return timeline.stream() == kAnyStream; }

  // Heap lock. Of kNoStream once the stream is destroyed: its handle may then mean another one.
  StreamKey key;
  // Whose requests its memory was taken for; null: ordinary ones. Stays when the pool is released.
  const std::shared_ptr<CapturePool> pool;
  StreamTimeline timeline;
  Arena small;  // spans, and blocks of up to 256 KiB
  Arena large;
  std::unique_ptr<ContextReplay> replay;  // of `large`, with stitching
  SpanLists spans;                        // cut from blocks of `small`, or borrowed
  uint64_t unmarked_bytes = 0;  // freed in `large` since MarkFrees, if there are other streams
  // Heap lock. How many blocks in arenas of other streams are this one's; and those of them that
  // were freed and wait for this stream before they go back, the newest first.
  uint64_t borrowed = 0;
  Block* returning = nullptr;
};

}  // namespace weir

#endif  // WEIR_POOL_STREAM_HEAP_H_
