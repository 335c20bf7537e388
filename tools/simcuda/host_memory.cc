#include "tools/simcuda/host_memory.h"

#include <sys/mman.h>

namespace weir::sim {

std::byte* AllocateHostBytes(uint64_t bytes) {
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return pages == MAP_FAILED ? nullptr : static_cast<std::byte*>(pages);
}

void FreeHostBytes(const Range& range) {
  if (range.kind != RangeKind::kPinned && range.kind != RangeKind::kManaged) return;
  munmap(reinterpret_cast<void*>(range.base), range.bytes);
}

}  // namespace weir::sim
