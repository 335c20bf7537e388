// The benchmark program of Weir: its C API, through libweir.so.
#include "bench/allocator.h"
#include "bench/device.h"
#include "weir/weir.h"

namespace weir::bench {
namespace {

int device_ordinal = 0;

weir_stream_t ToWeir(Stream stream) { return static_cast<weir_stream_t>(stream); }

}  // namespace

const AllocatorInfo& Info() {
  static const AllocatorInfo info = [] {
    AllocatorInfo i;
    i.name = "weir";
    i.version = weir_version();
    i.record_use = true;
    i.free_on_other = true;
    return i;
  }();
  return info;
}

bool Start(const StartOptions& options, std::string* error) {
  device_ordinal = options.simulated ? 0 : options.device;
  if (weir_configure(options.simulated ? "device:sim" : "device:cuda") != WEIR_OK ||
      weir_set_device(device_ordinal) != WEIR_OK) {
    *error = weir_last_error();
    return false;
  }
  return StartDevice(options.simulated, options.device, error);
}

void StartThread() {
  MakeDeviceCurrent();
  weir_set_device(device_ordinal);
}

Stream CreateStream() { return CreateDriverStream(); }

void* Allocate(size_t bytes, Stream stream) { return weir_malloc_async(bytes, ToWeir(stream)); }

void Free(void* pointer, size_t, Stream stream) { weir_free_async(pointer, ToWeir(stream)); }

void RecordUse(void* pointer, Stream other) { weir_record_use(pointer, ToWeir(other)); }

void FreeOnOther(void* pointer, size_t, Stream, Stream other) {
  weir_free_async(pointer, ToWeir(other));
}

void Reset() { weir_empty_cache(device_ordinal); }

uint64_t ReservedBytes() {
  weir_stats_t stats = {};
  weir_get_stats(device_ordinal, &stats);
  return stats.reserved_bytes;
}

}  // namespace weir::bench
