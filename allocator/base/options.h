// Every knob of Weir, with unit and default, and the text form "key:value,key:value" in which
// WEIR_CONF and weir_configure give them.
//
// Options are read once, when Weir is first used, and constant from then on.
#ifndef WEIR_BASE_OPTIONS_H_
#define WEIR_BASE_OPTIONS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "allocator/base/heap_options.h"

namespace weir {

struct ProcessOptions {
  // ---- Where ----

  enum class DeviceKind : uint8_t { kCuda, kSimulated };
  DeviceKind device = DeviceKind::kCuda;
  // Of the simulated device. 0 = its default.
  uint64_t sim_memory = 0;  // bytes per device
  int sim_devices = 0;
  int64_t sim_lag = -1;  // operations; -1: as it comes

  // ---- What ----

  // mode:passthrough (or WEIR_DISABLE=1): every request goes straight to the driver.
  bool passthrough = false;
  // The rest is for each device's heap. memory_limit as a fraction of the device's memory: > 0
  // takes the place of heap.memory_limit.
  HeapOptions heap;
  double memory_limit_fraction = 0;
  double preallocate_fraction = 0;  // the same for heap.preallocate

  // The heap's options with these in bytes.
  HeapOptions ForDevice(uint64_t total_bytes) const;
};

// Changes the options that the text names. False, with nothing changed, if a key is unknown or a
// value wrong; the error says which and lists what there is.
bool ParseOptions(std::string_view text, ProcessOptions* options, std::string* error);

// From WEIR_CONF and WEIR_DISABLE.
bool ReadOptionsFromEnvironment(ProcessOptions* options, std::string* error);

// "24GiB", "512MB", "1.5GiB", "4096": KiB, MiB, GiB, TiB are powers of 1024 and KB, MB, GB, TB of
// 1000; without a unit it is bytes. False if the text is anything else or more than 2^64 - 1 bytes.
bool ParseBytes(std::string_view text, uint64_t* bytes);

}  // namespace weir

#endif  // WEIR_BASE_OPTIONS_H_
