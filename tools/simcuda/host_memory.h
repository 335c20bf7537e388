// Real host memory behind pinned and managed allocations. Without state.
#ifndef WEIR_TOOLS_SIMCUDA_HOST_MEMORY_H_
#define WEIR_TOOLS_SIMCUDA_HOST_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "tools/simcuda/address_space.h"

namespace weir::sim {

// Page-aligned zeroed pages; null if the system has none. Not locked in memory: that would need
// privileges and proves nothing.
std::byte* AllocateHostBytes(uint64_t bytes);
// Unmaps what AllocateHostBytes returned for the range; nothing for ranges of other kinds.
void FreeHostBytes(const Range& range);

}  // namespace weir::sim

#endif  // WEIR_TOOLS_SIMCUDA_HOST_MEMORY_H_
