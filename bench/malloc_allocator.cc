// The benchmark program of the C library's malloc, on CPU memory, for scale.
#include <gnu/libc-version.h>
#include <malloc.h>

#include <cstdlib>

#include "bench/cpu_allocator.h"

namespace weir::bench {

const AllocatorInfo& Info() {
  static const AllocatorInfo info =
      CpuAllocatorInfo("malloc", "glibc " + std::string(gnu_get_libc_version()));
  return info;
}

bool Start(const StartOptions&, std::string*) { return true; }

void* Allocate(size_t bytes, Stream) { return std::malloc(bytes); }

void Free(void* pointer, size_t, Stream) { std::free(pointer); }

void Reset() { malloc_trim(0); }

// The arenas and the blocks that have a mapping of their own.
uint64_t ReservedBytes() {
  const struct mallinfo2 now = mallinfo2();
  return now.arena + now.hblkhd;
}

}  // namespace weir::bench
