// The benchmark program of the raw driver: cuMemAlloc and cuMemFree, nothing kept.
#include "bench/allocator.h"
#include "bench/device.h"

namespace weir::bench {
namespace {

AllocatorInfo info = [] {
  AllocatorInfo i;
  i.name = "cuda";
  i.max_blocks = 20000;
  return i;
}();

uint64_t (*reserved_bytes)() = [] { return uint64_t{0}; };

}  // namespace

const AllocatorInfo& Info() { return info; }

bool Start(const StartOptions& options, std::string* error) {
  if (!StartDevice(options.simulated, options.device, error)) return false;
  info.version = "driver " + DriverVersion();
  if (options.simulated) {
    info.note = "the time of the simulated device's calls: a real driver takes longer";
    reserved_bytes = SimulatedUsedBytes;
  }
  return true;
}

void StartThread() { MakeDeviceCurrent(); }

Stream CreateStream() { return CreateDriverStream(); }

void* Allocate(size_t bytes, Stream) { return DriverAllocate(bytes); }

void Free(void* pointer, size_t, Stream) { DriverFree(pointer); }

void RecordUse(void*, Stream) {}

void FreeOnOther(void* pointer, size_t, Stream, Stream) { DriverFree(pointer); }

void Reset() {}

uint64_t ReservedBytes() { return reserved_bytes(); }

}  // namespace weir::bench
