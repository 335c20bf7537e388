/* SPDX-License-Identifier: MIT
 *
 * Weir's C API, inspection: every block and segment of a device, and statistics by size. For
 * snapshots and other tools; nothing here changes what is allocated. What holds for all functions
 * stands in weir/weir.h.
 */
#ifndef WEIR_INSPECT_H_
#define WEIR_INSPECT_H_

#include "weir/weir.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Values of the streams below that are no streams. */
#define WEIR_ANY_STREAM ((weir_stream_t)(~(uintptr_t)0))    /* weir_malloc: used on any stream */
#define WEIR_NO_STREAM ((weir_stream_t)(~(uintptr_t)0 - 1)) /* one that was destroyed */

typedef enum weir_block_state {
  WEIR_BLOCK_FREE = 0,      /* nobody's, or kept in a thread's cache; may wait for its own stream */
  WEIR_BLOCK_ALLOCATED = 1, /* a caller has it */
  WEIR_BLOCK_PENDING = 2    /* freed, but streams that used it have not come so far: it is active */
} weir_block_state_t;

typedef struct weir_block_info {
  uint64_t address;
  uint64_t bytes;
  uint64_t requested_bytes; /* what its caller asked for; 0 if it is free */
  weir_stream_t stream;     /* whose order it follows; of a free block: its segment's */
  int32_t state;            /* weir_block_state_t */
  int32_t unused_;
} weir_block_info_t;

/* Contiguous memory of one stream, pool and size range, over as many physical handles as touch. */
typedef struct weir_segment_info {
  uint64_t address;
  uint64_t bytes;
  uint64_t allocated_bytes; /* sums over its blocks: those that are allocated, */
  uint64_t active_bytes;    /* those and the pending ones, */
  uint64_t requested_bytes; /* and what was asked for the allocated ones */
  weir_stream_t stream;     /* a block that another stream has borrowed names that stream */
  uint64_t pool;            /* weir_pool_t; 0: ordinary memory, as that of most released pools */
  int32_t device;
  int32_t is_large;  /* the stream's memory for requests above 256 KiB */
  int32_t is_mapped; /* 0: a classic segment, of cuMemAlloc or of a pool's own source */
  int32_t unused_;
} weir_segment_info_t;

/* Calls visit for each segment of the device in address order, with its blocks, which tile it. It
 * shows one moment: gathered under the locks of Weir (it may wait for a miss that is under way, and
 * not inside an observer of remaps), visited without any, so that visit may call everything.
 *
 * The sums over all segments are the statistics of that moment: allocated_bytes, active_bytes,
 * requested_bytes; and bytes is reserved_bytes without spares, memory that is mapped nowhere.
 * Memory that has several addresses (stitch, mesh, boundary) is listed once: where it is in use,
 * else at the address that used it last; so a segment may begin and end within a page. What a
 * pool's source took from Weir counts twice (weir/pools.h) and is listed twice, as the source's
 * block and as a segment of the pool; weir_find_block may show either. In mode:passthrough each
 * block is a segment.
 *
 * visit must not throw. A device that is not in use has no segment. */
typedef void (*weir_segment_visitor_t)(const weir_segment_info_t* segment,
                                       const weir_block_info_t* blocks, size_t count, void* user);
WEIR_API int weir_visit_segments(int device, weir_segment_visitor_t visit, void* user);

/* The block that contains ptr, whatever its state, and the segment around it, without its sums (0).
 * Either may be NULL. WEIR_ERROR_NOT_OWNED: there is no memory of Weir, or it is in use at another
 * address. Waits for nothing; what it says may have changed when it returns, unless the caller
 * holds the block. */
WEIR_API int weir_find_block(const void* ptr, weir_block_info_t* block,
                             weir_segment_info_t* segment);

/* The fields of weir_stats_t that say what is there, by size: large counts blocks of more than
 * 256 KiB in large segments, and the memory of large segments; small counts all else. What is said
 * of weir_stats_t holds: peaks are exact, and weir_reset_peak_stats lowers them. For current values
 * and totals of blocks small + large is what weir_get_stats says. The memory of both is less than
 * that by the spares; its totals count what came to a range, also from other addresses. A page
 * that was merged into one of the other range counts there. active may exceed reserved in small,
 * when small blocks lie in borrowed parts of large segments. */
typedef struct weir_size_stats {
#define WEIR_STAT_DECLARE(name) uint64_t name, peak_##name, total_##name;
  WEIR_STAT_FIELDS(WEIR_STAT_DECLARE)
#undef WEIR_STAT_DECLARE
} weir_size_stats_t;

/* All zero for a device that is not in use. */
WEIR_API int weir_get_size_stats(int device, weir_size_stats_t* small_, weir_size_stats_t* large);

#ifdef __cplusplus
}
#endif

#endif /* WEIR_INSPECT_H_ */
