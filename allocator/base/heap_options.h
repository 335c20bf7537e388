// HeapOptions: what can be tuned about one device's heap. Parsed from WEIR_CONF by base/options.
#ifndef WEIR_BASE_HEAP_OPTIONS_H_
#define WEIR_BASE_HEAP_OPTIONS_H_

#include <cstdint>
#include <limits>

#include "allocator/base/bytes.h"

namespace weir {

// When a stream takes free memory of another one that shares its granules with blocks in use.
enum class Borrowing {
  kNever,
  kPressure,  // when the limits allow no new memory
  kSmall,     // then, and before new memory is made for a block of up to 256 KiB
};

// Whether idle memory is moved to other addresses and given back without being asked.
enum class Compaction {
  kAuto,  // unless a library that may hold its pages unseen is loaded (pool/unseen_holders.h)
  kOn,
  kOff,
};

// Which rungs a miss may climb when no free block fits (pool/device_heap_miss.cc). New memory
// within the limits and idle memory that needs no wait are always used.
struct LadderOptions {
  bool borrow = true;     // free parts of granules that another stream uses
  bool wait = true;       // the host waits for queued work
  bool mesh = true;       // as far as HeapOptions::mesh allows
  bool callbacks = true;  // weir_add_memory_callback
};

// When partly used granules may be merged: it copies memory in use, while nothing else may run.
enum class Meshing {
  kNever,
  kCompact,   // by weir_compact only
  kPressure,  // and before a request would fail
};

struct HeapOptions {
  // No more than this is reserved on the device. Bytes.
  uint64_t memory_limit = std::numeric_limits<uint64_t>::max();

  // The soft limit: reserved memory grows freely up to peak active * (1 + soft_limit) + slack;
  // beyond it a miss first moves idle memory to where it is needed. While that has cost more driver
  // time than the guard allows, soft_limit_max takes the place of soft_limit.
  double soft_limit = 0.05;
  double soft_limit_max = 0.15;
  uint64_t soft_limit_slack = 8 * kMiB;
  // From a peak of this share of the device's memory (or of the limit) on memory grows freely:
  // there is nothing left to spare it for, and moving it early breaks it up.
  double soft_limit_until = 0.8;

  // The guard: a token bucket of driver time. Each large request adds guard_refill_us, up to
  // guard_burst_ms; the time that moving memory took is taken out.
  double guard_refill_us = 5;
  double guard_burst_ms = 100;

  // Physical handles are as long as reserved / handle_divisor, rounded down to a power of two, at
  // most max_handle_bytes: driver cost is per handle, so a large heap uses large ones.
  uint64_t handle_divisor = 512;
  uint64_t max_handle_bytes = 128 * kMiB;

  // A marker is recorded when so many bytes wait for a stream, or, if there are several streams,
  // twice as many were freed in a stream's own order; fewer wait until somebody needs them.
  uint64_t marker_bytes = 256 * kMiB;

  // What a thread may keep of one stream's freed small blocks, so that it needs no lock for the
  // next ones. 0: no thread caches.
  uint64_t thread_cache_bytes = 8 * kMiB;

  // A borrowed block may make the borrowing stream wait, on the device, for the stream it is from.
  Borrowing borrow = Borrowing::kPressure;

  // Off: memory stays where it is until the program gives it back explicitly, and new memory is
  // made up to the hard limit instead.
  Compaction compaction = Compaction::kAuto;

  // Placement at fresh addresses where the same requests were seen before, by mapping idle memory
  // there as well as where it is; and how much of such address space is kept, in multiples of
  // reserved memory.
  bool stitch = false;
  double alias_bound = 8;

  Meshing mesh = Meshing::kNever;

  // A large block may begin in the free end and end in the free begin of granules that blocks of
  // its stream use in part.
  bool share_boundaries = false;

  // Physical memory that is made when the device is first used and kept as spares, so that misses
  // only map it. What Weir does of itself never takes reserved memory below this. Bytes.
  uint64_t preallocate = 0;

  // Idle memory is given back to the driver, without waiting, at the end of a miss, when deferred
  // frees are looked at, and by weir_trim; never by a hit. As far as it is
  // more than release_threshold bytes:
  uint64_t release_threshold = std::numeric_limits<uint64_t>::max();
  // or has not been used for so many seconds; memory that was used between two of these moments
  // counts as used at the later one. 0: never.
  double idle_decay = 0;
  // or while more is reserved than this fraction of the device's memory (of memory_limit if that is
  // lower). Up to there a miss also makes new memory only where none is idle. 0: no such bound.
  double gc_threshold = 0;

  LadderOptions ladder;

  // Requests of at least so many bytes are remembered with their call stack, for the report of an
  // out-of-memory error. 0: none. Up to 256 KiB it switches thread caches off.
  uint64_t record_stacks = 0;

  // Address space reserved, in multiples of the device's memory.
  uint64_t address_space_factor = 8;

  // False: do not map memory, take segments from cuMemAlloc.
  bool vmm = true;
};

}  // namespace weir

#endif  // WEIR_BASE_HEAP_OPTIONS_H_
