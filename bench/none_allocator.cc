// The benchmark program without an allocator: every block has the same address. Its times are what
// the harness adds to every other program's.
#include "bench/cpu_allocator.h"

namespace weir::bench {
namespace {

char block;

}  // namespace

const AllocatorInfo& Info() {
  static const AllocatorInfo info = [] {
    AllocatorInfo i = CpuAllocatorInfo("none", "");
    i.note = "the harness itself";
    return i;
  }();
  return info;
}

bool Start(const StartOptions&, std::string*) { return true; }

void* Allocate(size_t, Stream) { return &block; }

void Free(void*, size_t, Stream) {}

void Reset() {}

uint64_t ReservedBytes() { return 0; }

}  // namespace weir::bench
