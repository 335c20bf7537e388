// What the programs of allocators of CPU memory share: there are no streams, so that they have
// nothing to do on one. Included by one file of each program.
#ifndef WEIR_BENCH_CPU_ALLOCATOR_H_
#define WEIR_BENCH_CPU_ALLOCATOR_H_

#include <string>

#include "bench/allocator.h"

namespace weir::bench {

inline AllocatorInfo CpuAllocatorInfo(const std::string& name, const std::string& version) {
  AllocatorInfo info;
  info.name = name;
  info.version = version;
  info.note = "CPU memory, for scale";
  info.device = false;
  // They keep their records in the blocks, so that each costs at least a page of this machine.
  info.max_blocks = 20000;
  info.max_bytes = uint64_t{32} << 30;  // of which little is touched
  return info;
}

void StartThread() {}
Stream CreateStream() { return nullptr; }
void RecordUse(void*, Stream) {}
void FreeOnOther(void*, size_t, Stream, Stream) {}

}  // namespace weir::bench

#endif  // WEIR_BENCH_CPU_ALLOCATOR_H_
