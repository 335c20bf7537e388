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

#ifdef __cplusplus
}
#endif

#endif /* WEIR_POOLS_H_ */
