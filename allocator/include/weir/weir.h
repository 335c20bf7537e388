/* SPDX-License-Identifier: MIT
 *
 * Weir's C API: a malloc/free for CUDA device memory.
 *
 * Every function may be called from any thread and after any failure. Sizes are bytes. Functions
 * that return a pointer return NULL on failure, functions that return int return WEIR_OK (0) or a
 * weir_status_t; in both cases weir_last_error() says what was wrong and what to do. A failed call
 * changes nothing. No function may be called from a CUDA host function.
 *
 * Order. Memory of weir_malloc may be used on any stream. weir_free makes it available again when
 * all work that was submitted to the device before the call is complete; weir_free itself never
 * waits. Memory of weir_malloc_async(size, s) belongs to stream s: it may be used by work submitted
 * to s after the call, and after weir_free_async(p, s) later requests on s may get it at once, in
 * stream order.
 *
 * Stream capture. Allocating and freeing leave captures valid that Weir can see: those on blocking
 * streams and on streams it was given. While a non-blocking stream that Weir has never seen is
 * captured, do not allocate or free with the functions that name no stream. Memory that a captured
 * graph uses must stay allocated as long as the graph may be launched. weir_calloc, weir_memcpy and
 * weir_memset work on the legacy stream: not while a blocking stream is captured.
 *
 * Fork. A child that was forked after its parent had begun to use Weir cannot use it, nor CUDA. No
 * call waits for a lock there: functions that free, end, release or remove something, and
 * weir_record_use, do nothing and succeed; all others fail with WEIR_ERROR_DRIVER.
 */
#ifndef WEIR_WEIR_H_
#define WEIR_WEIR_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define WEIR_API __attribute__((visibility("default")))
#else
#define WEIR_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The same type as cudaStream_t and CUstream. NULL is the legacy default stream, (weir_stream_t)2
 * the calling thread's default stream. */
typedef struct CUstream_st* weir_stream_t;

typedef enum weir_status {
  WEIR_OK = 0,
  WEIR_ERROR_INVALID_ARGUMENT = 1, /* a size, alignment, pointer or device number that cannot be */
  WEIR_ERROR_OUT_OF_MEMORY = 2,    /* the bytes are not there, or a limit forbids them */
  WEIR_ERROR_NOT_OWNED = 3,        /* the pointer is not the start of a block of Weir */
  WEIR_ERROR_DOUBLE_FREE = 4,      /* the block was freed before */
  WEIR_ERROR_NO_DEVICE = 5,        /* no driver, or no such device */
  WEIR_ERROR_CONFIGURATION = 6,    /* WEIR_CONF or an option is wrong */
  WEIR_ERROR_DRIVER = 7,           /* the CUDA driver reported an error that Weir cannot mend */
  WEIR_ERROR_CORRUPT = 8,          /* weir_verify found the heap damaged */
  WEIR_ERROR_IN_CALLBACK = 9       /* not inside a function of weir_observe_remap */
} weir_status_t;

/* ---- Configuration ----------------------------------------------------------------------------
 * Options are text: "key:value,key:value", for example "device:sim,sim_memory:24GiB". The
 * environment variable WEIR_CONF holds them in the same form, and WEIR_DISABLE=1 means
 * mode:passthrough: every request goes straight to the driver, and every free waits for the
 * device's work, except during a stream capture that a free has named, when it is put off. A wrong
 * or unknown option makes every function fail with WEIR_ERROR_CONFIGURATION and a text that lists
 * the options. */

/* Sets options, which win over the environment's. Call it before any other function of this header
 * that needs a device; once one has succeeded the answer is WEIR_ERROR_CONFIGURATION. May be called
 * several times: later values win. */
WEIR_API int weir_configure(const char* options);

/* ---- Allocation ------------------------------------------------------------------------------
 * Pointers are aligned to 512 bytes or more; contents are undefined. A request of 0 bytes gives a
 * pointer unlike any other live one, which must be freed like them; nothing may be stored behind
 * it. A request that exceeds the device's memory fails with WEIR_ERROR_OUT_OF_MEMORY without
 * touching what is cached. */

/* Allocates on the calling thread's device (see weir_set_device), for use on any stream. */
WEIR_API void* weir_malloc(size_t bytes);
WEIR_API void* weir_malloc_device(size_t bytes, int device);

/* Allocates count * size bytes and sets them to zero before it returns (it waits for that). */
WEIR_API void* weir_calloc(size_t count, size_t size);

/* As weir_malloc; alignment is a power of two, at most 2 MiB. */
WEIR_API void* weir_aligned_alloc(size_t alignment, size_t bytes);
WEIR_API void* weir_aligned_alloc_device(size_t alignment, size_t bytes, int device);

/* Allocates for use on a stream of the calling thread's device. The stream must live until the
 * block is freed. Never waits on a hit; a miss may call the driver and, when memory is short, wait
 * for earlier work. */
WEIR_API void* weir_malloc_async(size_t bytes, weir_stream_t stream);
WEIR_API void* weir_malloc_async_device(size_t bytes, int device, weir_stream_t stream);
WEIR_API void* weir_aligned_alloc_async(size_t alignment, size_t bytes, weir_stream_t stream);
WEIR_API void* weir_aligned_alloc_async_device(size_t alignment, size_t bytes, int device,
                                               weir_stream_t stream);

/* The same in a block that has room for `padded` bytes, from `bytes` up to twice as many; `bytes`
 * count as requested. For who rounds sizes up so that more of them are equal. */
WEIR_API void* weir_malloc_padded_async_device(size_t bytes, size_t padded, int device,
                                               weir_stream_t stream);

/* Frees a block of any of the functions above. NULL is allowed. The memory is reused when all work
 * submitted to the device before the call is complete. Any other pointer is an error: foreign
 * pointers and pointers into a block WEIR_ERROR_NOT_OWNED, a second free WEIR_ERROR_DOUBLE_FREE
 * (as long as the memory has not been handed out again). */
WEIR_API int weir_free(void* ptr);

/* Frees a block in the order of a stream: the caller has ordered every use before this point of
 * the stream. On the stream it was allocated on the memory may be reused at once; on another one,
 * when a marker on that stream is complete. */
WEIR_API int weir_free_async(void* ptr, weir_stream_t stream);

/* As weir_free_async with the stream that the block was allocated on, whichever it was; as
 * weir_free for blocks of functions that name no stream. */
WEIR_API int weir_free_ordered(void* ptr);

/* Tells that work already submitted to the stream uses the block (PyTorch's record_stream). When
 * the block is freed it also waits for all that the stream was given before the free. Blocks of
 * weir_malloc need it never. */
WEIR_API int weir_record_use(void* ptr, weir_stream_t stream);

/* Tells that a stream is about to be destroyed: call it before the stream is destroyed, so that no
 * other thread's request still uses the handle. Blocks that it owns stay valid and can still be
 * freed. */
WEIR_API int weir_stream_destroyed(weir_stream_t stream);

/* Bytes from ptr that may be used: at least what was asked. 0 for NULL and for pointers that are
 * not the start of a live block. */
WEIR_API size_t weir_usable_size(const void* ptr);

/* ---- Copies, so that a C program needs no other CUDA library -----------------------------------
 * Device pointers of one device and host pointers, in any mix. The first two wait for completion,
 * the others are ordered in the stream; what the driver says of pageable host memory holds here
 * too. */
WEIR_API int weir_memcpy(void* dst, const void* src, size_t bytes);
WEIR_API int weir_memset(void* dst, int value, size_t bytes);
WEIR_API int weir_memcpy_async(void* dst, const void* src, size_t bytes, weir_stream_t stream);
WEIR_API int weir_memset_async(void* dst, int value, size_t bytes, weir_stream_t stream);

/* ---- Devices -----------------------------------------------------------------------------------
 * Weir does not follow cudaSetDevice, because a hit must not ask the driver. A thread's device is
 * what it last gave to weir_set_device; before that, the device of the CUDA context that was
 * current at its first call, else 0. */
WEIR_API int weir_device_count(int* count);
WEIR_API int weir_set_device(int device);
WEIR_API int weir_get_device(int* device);

/* Bytes that can still be allocated (free on the device plus idle in Weir, within the limit), and
 * the device's total. Calls the driver, and waits for nothing. */
WEIR_API int weir_mem_get_info(int device, size_t* free_bytes, size_t* total_bytes);

/* Whether weir_malloc_async(bytes, stream) on the device would succeed now, without asking
 * callbacks: *fits is 1 or 0, and *missing_bytes (may be NULL) how many bytes, in whole pages,
 * would have to become free. It changes nothing and waits for no work, only for a miss that is
 * under way; it asks the driver for its free memory, and calls filters of capture pools. It counts
 * as free what the request would wait for, and may take as long as a miss's planning. 1 holds
 * until other threads, other processes or later calls change something. 0 is wrong in rare cases
 * at the very border (some 1.5 % of requests there with option mesh, hardly any without): where
 * the request would succeed before it has waited for everything, or merges pages more than once.
 * Where the option ladder forbids to wait it does not see that work is complete unless Weir knew
 * it before, and 1 was wrong for a few of 10,000 requests; in mode:passthrough it counts neither
 * what a capture keeps from being freed nor free parts of the driver's own pages. A device that is
 * not in use is not started: the answer compares with its free memory if a CUDA context of it is
 * current in the calling thread, else with all its memory. */
WEIR_API int weir_would_fit(int device, size_t bytes, weir_stream_t stream, int* fits,
                            size_t* missing_bytes);

/* ---- Giving memory back ------------------------------------------------------------------------
 */

/* Releases every idle physical handle whose work is complete. Waits for freed but still used
 * memory first (it synchronizes the streams that used it). From then on reserved memory grows as in
 * a program that has just begun: earlier peaks do not count (options soft_limit). */
WEIR_API int weir_empty_cache(int device);

/* The same until at most keep_bytes are reserved, or nothing idle is left. It waits only if more is
 * reserved. Then it gives back what the options release_threshold, idle_decay and gc_threshold say;
 * so weir_trim(device, SIZE_MAX), called from time to time, lets an idle program's memory decay
 * without waiting. */
WEIR_API int weir_trim(int device, size_t keep_bytes);

typedef struct weir_compact_options {
  size_t keep_bytes; /* stop giving back when no more than this is reserved */
  uint32_t max_ms;   /* unless 0: begin no merge or release after so long; waiting has no bound */
  int merge;         /* 1: merge partly used granules, if the option `mesh` allows it; 0: do not */
  uint64_t unused_[4]; /* 0 */
} weir_compact_options_t;

typedef struct weir_compact_result {
  uint64_t merged_granules; /* emptied into others */
  uint64_t copied_bytes;    /* moved by that, on the device */
  uint64_t released_bytes;  /* given back to the driver */
  uint64_t reserved_bytes;  /* still held */
  uint64_t driver_time_ns;  /* modelled on the simulated device */
  uint64_t unused_[1];
} weir_compact_result_t;

/* Compacts the device's memory: merges partly used granules, then gives what is idle back to the
 * driver, as weir_empty_cache does. No pointer changes. Both arguments after the device may be
 * NULL; without options it does all it can. Waits for the device's work. Merging (only with
 * mesh:compact or mesh:pressure) copies memory in use: while it runs no other thread may give the
 * device work that touches memory of Weir. Memory that is pinned, shared with others, or of a
 * capture pool is left alone, and nothing is merged while a stream is captured. After a failure
 * nothing is lost, unless the driver unmaps a page and then refuses to map anything there. */
WEIR_API int weir_compact(int device, const weir_compact_options_t* options,
                          weir_compact_result_t* result);

/* Limits what Weir may reserve on the device. Lower than what is reserved now: nothing is taken
 * away, but no more is added. SIZE_MAX removes the limit. */
WEIR_API int weir_set_memory_limit(int device, size_t bytes);

/* The same as a fraction of the device's memory, above 0 and at most 1. The limit counts what Weir
 * reserves: not the CUDA context, nor what other libraries take from the driver. */
WEIR_API int weir_set_memory_fraction(int device, double fraction);

/* ---- When memory is short ----------------------------------------------------------------------
 * A request that no free block fits climbs a ladder: frees whose work is complete, spares, new
 * memory within the limits, idle memory moved to where it is needed, memory borrowed from other
 * streams, then the host waits for the oldest deferred frees, one after the other, partly used
 * pages are merged (option mesh), and at last callbacks are asked. After each step Weir looks
 * again, and only then it fails, with a report. The same request made again at once fails again.
 * The option `ladder` leaves steps out; without `wait` it may succeed once work has ended. */

/* Makes physical memory until at least `bytes` are reserved, so that later misses only map it. All
 * or nothing; may take long, and blocks other misses meanwhile. Beyond 4 GiB it is made in larger
 * units, some of which a miss must cut again. WEIR_ERROR_OUT_OF_MEMORY if a limit or the driver
 * forbids it, WEIR_ERROR_CONFIGURATION without mapping (vmm:off) and in mode:passthrough.
 * weir_empty_cache and weir_trim give it back like all idle memory. */
WEIR_API int weir_preallocate(int device, size_t bytes);

/* A function that can free memory: asked, in the order of addition, before a request fails.
 * bytes_needed is what is missing, in whole pages: a free block of that size at a page's border, or
 * so much memory given back to the driver, is enough. Returns the bytes that it has freed, or 0;
 * while callbacks free something they are asked again, and Weir tries once more after the last in
 * any case. It is called on the requesting thread without any lock of Weir, perhaps on several
 * threads at once; it may call every function of Weir, but an allocation that fails inside it asks
 * no callbacks. It must not throw. Not in mode:passthrough. */
typedef size_t (*weir_memory_callback_t)(int device, size_t bytes_needed, void* user);
WEIR_API int weir_add_memory_callback(weir_memory_callback_t callback, void* user);

/* Removes what was added with the same two pointers. It may still be running on another thread:
 * `user` must outlive the requests that are under way. */
WEIR_API int weir_remove_memory_callback(weir_memory_callback_t callback, void* user);

/* Names what the calling thread allocates from now on, for reports: blocks of more than 32 KiB
 * remember the newest tag. UTF-8; a name is kept for the life of the process. Costs hits nothing
 * worth measuring. */
WEIR_API int weir_push_tag(const char* name);
WEIR_API int weir_pop_tag(void);

/* Why the device's last request failed for want of memory: what was asked, what each step of the
 * ladder gained, who holds most (by tag, size, and call stack with the option record_stacks), what
 * is free but unusable, and what would have made it fit. Writes at most size - 1 characters and a
 * terminating 0; returns the whole length, 0 if nothing has failed (always in mode:passthrough) or
 * the arguments are wrong. JSON has the schema "weir-oom/1". */
typedef enum weir_report_format { WEIR_REPORT_TEXT = 0, WEIR_REPORT_JSON = 1 } weir_report_format_t;
WEIR_API size_t weir_oom_report(int device, int format, char* buffer, size_t size);

/* ---- Pages that others hold --------------------------------------------------------------------
 * Weir moves idle physical memory to other addresses and gives it back. Who registers device memory
 * with a network card, exports it, or retains its handle holds the physical pages that an address
 * had at that time, so those must stay: pin them, or follow the changes. Where a library that may
 * register memory is loaded (libibverbs, UCX, NVSHMEM, GDRCopy) and no observer is there, Weir
 * moves nothing and gives nothing back of itself, and says so once on stderr (option compaction);
 * then only weir_empty_cache and weir_trim give memory back: call them when nothing is registered
 * but what is pinned. Not in mode:passthrough, where every block is memory of its own. */

/* Keeps the physical memory under [ptr, ptr + bytes) where it is: it is not unmapped, mapped at a
 * further address, merged with other memory or given back until it is unpinned, not even by
 * weir_empty_cache, and also when the blocks in it have been freed; it then serves other requests
 * at the same addresses. Memory is pinned in whole physical handles, so more than the range may be
 * kept (stats: pinned_bytes). Memory that has several addresses (stitch) keeps all of them.
 * Everything in the range must be memory that Weir has mapped, else WEIR_ERROR_NOT_OWNED, or
 * WEIR_ERROR_INVALID_ARGUMENT for 0 bytes, and nothing is pinned. May wait for a miss that is under
 * way. Pins are counted: each needs a weir_unpin_range of the same pointer and bytes; a range that
 * is not pinned is WEIR_ERROR_INVALID_ARGUMENT. */
WEIR_API int weir_pin_range(const void* ptr, size_t bytes);
WEIR_API int weir_unpin_range(const void* ptr, size_t bytes);

/* Tells what Weir does to its addresses: before the physical memory at an address is unmapped (or
 * freed, where it is a cuMemAlloc), and after memory was mapped at an address and is accessible. Of
 * a change that fails too: what is told is always what is done, and memory that stays after all is
 * told to be mapped again. Each range is one handle, and is unmapped as it was mapped. What was
 * mapped before is not told, so observe before the first allocation. While an observer is there
 * Weir moves memory whatever libraries are loaded: deregister what is registered in a range before
 * it is unmapped. Calls of one device come one after the other, those of several devices at once.
 *
 * It is called on the thread that changes the mapping, during that call. It may call the driver,
 * but not wait for another thread that calls Weir. Of Weir it may call frees, statistics, copies,
 * and allocations for which a free block is there: what has to map memory, or to wait for another
 * change, fails with WEIR_ERROR_IN_CALLBACK. It must not throw. */
typedef enum weir_remap_event {
  WEIR_REMAP_BEFORE_UNMAP = 1,
  WEIR_REMAP_AFTER_MAP = 2
} weir_remap_event_t;
typedef void (*weir_remap_observer_t)(int device, void* address, size_t bytes, int event,
                                      void* user);
WEIR_API int weir_observe_remap(weir_remap_observer_t observer, void* user);

/* Removes what was added with the same two pointers. It may still be running on another thread:
 * `user` must outlive the calls that are under way. */
WEIR_API int weir_unobserve_remap(weir_remap_observer_t observer, void* user);

/* The same for who only wants to know (statistics, histories): it is told after the observers, and
 * does not count as one that lets go of what it has registered. */
WEIR_API int weir_watch_remap(weir_remap_observer_t watcher, void* user);
WEIR_API int weir_unwatch_remap(weir_remap_observer_t watcher, void* user);

/* ---- Statistics --------------------------------------------------------------------------------
 * requested: what callers asked for. allocated: the same, rounded up to blocks. active: allocated
 * plus freed but still in use by a stream. reserved: physical memory held by Weir. Always
 * requested <= allocated <= active <= reserved. total_* counts what was ever taken. */
#define WEIR_STAT_FIELDS(X) \
  X(requested_bytes)        \
  X(allocated_bytes)        \
  X(active_bytes)           \
  X(reserved_bytes)         \
  X(allocations)            \
  X(active_blocks)          \
  X(handles)

typedef struct weir_stats {
#define WEIR_STAT_DECLARE(name) uint64_t name, peak_##name, total_##name;
  WEIR_STAT_FIELDS(WEIR_STAT_DECLARE)
#undef WEIR_STAT_DECLARE
  uint64_t cached_bytes;    /* reserved - active */
  uint64_t misses;          /* requests that no free block could serve */
  uint64_t remapped_bytes;  /* physical memory that moved to another address */
  uint64_t waits;           /* times the host waited for a marker */
  uint64_t out_of_memory;   /* requests that failed */
  uint64_t deferred_frees;  /* frees that had to wait for a marker */
  uint64_t driver_time_ns;  /* spent in slow driver calls; modelled on the simulated device */
  uint64_t memory_limit;    /* bytes; UINT64_MAX without a limit */
  uint64_t mechanisms_off;  /* optional driver mechanisms that failed and are off, each told once */
  uint64_t borrowed_blocks; /* blocks in granules of another stream, handed out so far */
  uint64_t streams;         /* streams, by pool, that are known or whose memory is still held */
  uint64_t stitched_bytes;  /* physical memory that got a further address, see stitch */
  uint64_t merged_granules; /* granules emptied into others, see mesh */
  uint64_t shared_blocks;   /* blocks that begin or end in a granule of others, see boundary */
  uint64_t served_complete; /* misses served by memory that had become free by then, */
  uint64_t served_mapped;   /* by new memory or by idle memory that was moved, */
  uint64_t served_borrowed; /* by free parts of another stream's granules, */
  uint64_t served_waited;   /* after the host had waited, */
  uint64_t served_callbacks; /* after a callback had been asked, */
  uint64_t served_merged;    /* after granules had been merged */
  uint64_t copied_bytes;     /* by merges */
  uint64_t pinned_bytes;     /* physical memory that weir_pin_range keeps where it is */
  uint64_t grow_only;        /* 1 while idle memory is not moved, see compaction; else 0 */
  uint64_t unused_[1];       /* room to grow without a change of size */
} weir_stats_t;

/* All zero, without a limit, for a device that was not used yet: it is not started for this. */
WEIR_API int weir_get_stats(int device, weir_stats_t* stats);
WEIR_API int weir_reset_peak_stats(int device);

/* ---- Checking and errors -----------------------------------------------------------------------
 */

/* Checks every invariant of every device's heap. WEIR_OK, or WEIR_ERROR_CORRUPT with the first
 * broken one in weir_last_error(). */
WEIR_API int weir_verify(void);

/* The calling thread's last failure, "" if there was none. Valid until its next failure. */
WEIR_API const char* weir_last_error(void);
WEIR_API weir_status_t weir_last_status(void);

WEIR_API const char* weir_version(void);

#ifdef __cplusplus
}
#endif

#include "weir/pools.h"

#endif /* WEIR_WEIR_H_ */
