// The benchmark program of RMM's pool_memory_resource. The pool begins empty and grows as it does
// without a maximum size: each time by what it has.
#include <rmm/mr/device/pool_memory_resource.hpp>

namespace weir::bench {

class Upstream;
using Resource = rmm::mr::pool_memory_resource<Upstream>;

static Resource* MakeResource(Upstream* from);

}  // namespace weir::bench

#include "bench/rmm_allocator.h"

namespace weir::bench {

static Resource* MakeResource(Upstream* from) { return new Resource(from, 0); }

const AllocatorInfo& Info() {
  static const AllocatorInfo info = [] {
    AllocatorInfo i = RmmInfo("rmm_pool");
    i.max_blocks = 20000;  // its free list is searched from one end
    return i;
  }();
  return info;
}

uint64_t ReservedBytes() { return upstream.bytes(); }

}  // namespace weir::bench
