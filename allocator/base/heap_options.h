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

struct HeapOptions {
  // No more than this is reserved on the device. Bytes.
  uint64_t memory_limit = std::numeric_limits<uint64_t>::max();

  // The soft limit: reserved memory grows freely up to peak active * (1 + soft_limit) + slack;
  // beyond it a miss first moves idle memory to where it is needed. While that has cost more driver
  // time than the guard allows, soft_limit_max takes the place of soft_limit.
  double soft_limit = 0.05;
  double soft_limit_max = 0.15;
  uint64_t soft_limit_slack = 8 * kMiB;

  // The guard: a token bucket of driver time. Each large request adds guard_refill_us, up to
  // guard_burst_ms; the time that moving memory took is taken out.
  double guard_refill_us = 5;
  double guard_burst_ms = 100;

  // Physical handles are as long as reserved / handle_divisor, rounded down to a power of two, at
  // most max_handle_bytes: driver cost is per handle, so a large heap uses large ones.
  uint64_t handle_divisor = 512;
  uint64_t max_handle_bytes = 128 * kMiB;

  // A marker is recorded when so many bytes wait for a stream; fewer wait until somebody needs
  // them.
  uint64_t marker_bytes = 64 * kMiB;

  // What a thread may keep of one stream's freed small blocks, so that it needs no lock for the
  // next ones. 0: no thread caches.
  uint64_t thread_cache_bytes = 8 * kMiB;

  // A borrowed block may make the borrowing stream wait, on the device, for the stream it is from.
  Borrowing borrow = Borrowing::kPressure;

  // Placement at fresh addresses where the same requests were seen before, by mapping idle memory
  // there as well as where it is; and how much of such address space is kept, in multiples of
  // reserved memory.
  bool stitch = false;
  double alias_bound = 8;

  // Address space reserved, in multiples of the device's memory.
  uint64_t address_space_factor = 8;

  // False: do not map memory, take segments from cuMemAlloc.
  bool vmm = true;
};

}  // namespace weir

#endif  // WEIR_BASE_HEAP_OPTIONS_H_
