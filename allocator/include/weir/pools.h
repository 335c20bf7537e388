/* SPDX-License-Identifier: MIT
 *
 * Weir's C API, pools: memory that serves only who was routed to it. A part of weir/weir.h, which
 * includes it and says what holds for all functions.
 */
#ifndef WEIR_POOLS_H_
#define WEIR_POOLS_H_

#include "weir/weir.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Capture pools: memory for CUDA graphs -----------------------------------------------------
 * A graph runs on the addresses it was captured with whenever it is launched, so what is allocated
 * during a capture must come from a pool that serves nothing else:
 *
 *   weir_pool_create(device, &pool);
 *   weir_pool_begin(pool);  cudaStreamBeginCapture(...);
 *   ... allocate, launch, free ...
 *   cudaStreamEndCapture(...);  weir_pool_end(pool);
 *   ... launch the graph as often as you like, then destroy it ...
 *   weir_pool_release(pool);
 *
 * Blocks of a pool are freed with the ordinary functions, during the capture or later; the memory
 * then serves the same pool again, and only that, until the pool is released. Memory that is
 * released is reused when all work submitted to the device before the release is complete, which is
 * found out when no route exists any more. Graphs that share a pool share its memory: they must not
 * run at the same time. Frees during a capture that must wait for a captured stream take effect
 * when the capture has ended. A capture that failed is ended in the same way; it leaves nothing
 * behind. Not in mode:passthrough. */
typedef uint64_t weir_pool_t; /* 0 is never a pool */

/* A pool with one user; retain adds one, release takes one away, and the last ends the pool and the
 * routes that still lead to it. A pool keeps its memory by stream: what was freed on a stream that
 * was destroyed since serves nobody until the release. */
WEIR_API int weir_pool_create(int device, weir_pool_t* pool);
WEIR_API int weir_pool_retain(weir_pool_t pool);
WEIR_API int weir_pool_release(weir_pool_t pool);

/* Routes the calling thread's requests on the pool's device to the pool, until weir_pool_end of the
 * same thread. Routes nest: the newest wins. */
WEIR_API int weir_pool_begin(weir_pool_t pool);

/* Routes the requests of all threads for streams for which the filter returns something other than
 * 0. It is called with the stream of a request, without any lock held; it may ask the driver about
 * the stream, but must not call Weir. While such a route exists hits cost more on the device. */
typedef int (*weir_pool_filter_t)(weir_stream_t stream, void* user);
WEIR_API int weir_pool_begin_filter(weir_pool_t pool, weir_pool_filter_t filter, void* user);

/* Limits the physical memory of the pool. Lower than what it holds now: nothing is taken away, but
 * no more is added. SIZE_MAX removes the limit. */
WEIR_API int weir_pool_set_limit(weir_pool_t pool, size_t bytes);

/* Ends the newest route to the pool. A filter may still be running when it returns: `user` must
 * outlive the requests that other threads have begun before. */
WEIR_API int weir_pool_end(weir_pool_t pool);

/* ---- Pools with memory of their own -------------------------------------------------------------
 */

/* Where the memory of a pool comes from instead of the driver: `allocate` is called with the bytes
 * of a segment (2 MiB for requests of up to 1 MiB, 20 MiB for those below 10 MiB, else the request
 * rounded up to 2 MiB) and the request's stream (NULL for weir_malloc). It returns memory of the
 * device, aligned to 512 bytes, or NULL if there is none: then the request fails, after idle memory
 * of the pool and the callbacks of the program. Every segment is given back by one call of
 * `deallocate`, with the same arguments, after all work that used it.
 *
 * Both are called on the thread that needs them, on several at once, without any lock of Weir. They
 * may call every function of Weir; what they allocate there is ordinary memory, whatever routes
 * exist, and may be the segment itself (it counts twice then). They must not throw, and `user` must
 * live until the last segment was given back. */
typedef void* (*weir_pool_allocate_t)(size_t bytes, int device, weir_stream_t stream, void* user);
typedef void (*weir_pool_deallocate_t)(void* ptr, size_t bytes, int device, weir_stream_t stream,
                                       void* user);

typedef struct weir_pool_options {
  weir_pool_allocate_t allocate; /* NULL, both: the device's own memory */
  weir_pool_deallocate_t deallocate;
  void* user;
  int32_t no_split;    /* 1: each block is a whole segment, see weir_pool_set_no_split */
  int32_t use_on_oom;  /* 1: see weir_pool_set_use_on_oom */
  uint64_t unused_[4]; /* 0 */
} weir_pool_options_t;

/* As weir_pool_create. A pool with a source holds nothing else, and its memory serves nothing else,
 * also after the release: a block that outlives its pool is freed as usual, and its segment goes
 * back to its source. The source is not asked about limits: memory_limit and weir_pool_set_limit
 * hold for what it gives, the device's size does not. */
WEIR_API int weir_pool_create_with(int device, const weir_pool_options_t* options,
                                   weir_pool_t* pool);

/* 1: what lies free in the pool and is complete may serve ordinary requests, before callbacks are
 * asked and the request fails. For memory that no graph uses: its contents change. 0: no more (what
 * it serves by then stays until it is freed). */
WEIR_API int weir_pool_set_use_on_oom(weir_pool_t pool, int value);

/* From the pool's first allocation on, before which it must be called, each block is a segment of
 * cuMemAlloc, or of the pool's source, and is only reused as a whole: a request takes the smallest
 * free one that is large enough, however much larger it is. */
WEIR_API int weir_pool_set_no_split(weir_pool_t pool);

/* Gives back what lies idle in the pool, to the driver or the pool's source; waits for memory that
 * was freed but is still used. The caller knows that no graph uses it. A released pool can be given
 * too: of a pool with a source or without splitting nothing goes anywhere else (weir_empty_cache,
 * weir_trim and requests that would fail give it back as well, and so does the free of a segment's
 * last block if there is nothing to wait for); of the others, what is not in other use by then. */
WEIR_API int weir_pool_empty(weir_pool_t pool);

/* Makes the blocks in use of the pool exactly these, given by the address, bytes, requested_bytes
 * and stream that weir_visit_segments showed of them while they were in use (weir/inspect.h): all
 * others are freed at once, and those that are missing are allocated again at their addresses. The
 * caller has synchronized the device. All or nothing: WEIR_ERROR_INVALID_ARGUMENT says which block
 * cannot be restored, because its memory is not the pool's any more (weir_pool_empty,
 * use_on_oom), is used by others, or belongs to two of them. For states of a pool to which graphs
 * return, as PyTorch's cudagraph trees do. */
struct weir_block_info;
WEIR_API int weir_pool_restore(weir_pool_t pool, const struct weir_block_info* blocks,
                               size_t count);

#ifdef __cplusplus
}
#endif

#endif /* WEIR_POOLS_H_ */
