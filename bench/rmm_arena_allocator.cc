// The benchmark program of RMM's arena_memory_resource, with its default size: half of the device's
// free memory, taken at the start, so that its reserved bytes say nothing.
#include <rmm/mr/device/arena_memory_resource.hpp>

namespace weir::bench {

class Upstream;
using Resource = rmm::mr::arena_memory_resource<Upstream>;

static Resource* MakeResource(Upstream* from);

}  // namespace weir::bench

#include "bench/rmm_allocator.h"

namespace weir::bench {

static Resource* MakeResource(Upstream* from) { return new Resource(from); }

const AllocatorInfo& Info() {
  static const AllocatorInfo info = [] {
    AllocatorInfo i = RmmInfo("rmm_arena");
    i.max_blocks = 20000;  // more take minutes to free
    return i;
  }();
  return info;
}

uint64_t ReservedBytes() { return 0; }

}  // namespace weir::bench
