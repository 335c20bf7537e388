// The benchmark program of the driver's own stream-ordered allocator: cuMemAllocAsync and
// cuMemFreeAsync on the default pool, which is told to keep what is freed.
#include "bench/allocator.h"
#include "bench/device.h"

namespace weir::bench {
namespace {

AllocatorInfo info = [] {
  AllocatorInfo i;
  i.name = "cuda_async";
  i.max_blocks = 20000;
  return i;
}();

}  // namespace

const AllocatorInfo& Info() { return info; }

bool Start(const StartOptions& options, std::string* error) {
  if (!StartDevice(options.simulated, options.device, error)) return false;
  info.version = "driver " + DriverVersion();
  if (options.simulated) {
    info.note = "the time of the simulated device's calls: times count only on a real device";
  }
  return KeepPoolMemory(error);
}

void StartThread() { MakeDeviceCurrent(); }

Stream CreateStream() { return CreateDriverStream(); }

void* Allocate(size_t bytes, Stream stream) { return DriverAllocateAsync(bytes, stream); }

void Free(void* pointer, size_t, Stream stream) { DriverFreeAsync(pointer, stream); }

void RecordUse(void*, Stream) {}

// The driver wants the other stream to wait for the allocation first, which no case arranges.
void FreeOnOther(void* pointer, size_t, Stream stream, Stream) { DriverFreeAsync(pointer, stream); }

void Reset() { TrimPool(); }

uint64_t ReservedBytes() { return PoolReservedBytes(); }

}  // namespace weir::bench
