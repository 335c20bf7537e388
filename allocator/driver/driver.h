// Driver: the loaded CUDA driver, real or simulated. One per process; made once, never destroyed
// (at process exit the driver may be gone before us). Immutable after Open, so thread-safe.
#ifndef WEIR_DRIVER_DRIVER_H_
#define WEIR_DRIVER_DRIVER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "allocator/driver/driver_status.h"

namespace weir {

struct DriverLibrary;
struct DriverTable;
struct LoadedTable;

struct DriverOptions {
  bool simulated = false;
  // Of the simulated device; 0 = its default.
  int sim_devices = 0;
  uint64_t sim_memory_bytes = 0;
  int64_t sim_lag = -1;
};

class Driver {
 public:
  // Loads and initializes the driver. nullptr on failure, with a text that says what to do.
  static std::unique_ptr<const Driver> Open(const DriverOptions& options, std::string* error);
  // The same with a library that is open already (tests bring their own).
  static std::unique_ptr<const Driver> Open(const DriverLibrary& library, std::string* error);
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  const DriverTable& entries() const;
  bool simulated() const { return virtual_time_ns_ != nullptr; }
  int device_count() const { return static_cast<int>(devices_.size()); }
  int version() const;  // 1000 * major + 10 * minor
  // Optional entry points that the driver lacks, with the reason.
  const std::map<std::string, std::string>& missing() const;

  // Any other entry point by base name and version, for tools that need more than the table has;
  // nullptr if the driver lacks it.
  void* Find(const char* entry, int version) const;

  // The driver's CUdevice for an ordinal below device_count(), and back (-1 if unknown).
  int device(int ordinal) const { return devices_[static_cast<size_t>(ordinal)]; }
  int OrdinalOf(int device) const;
  // The ordinal of the context that is current in the calling thread, -1 if there is none.
  int CurrentDevice() const;

  // Without making a context: exact if one of the device is current in the calling thread, else all
  // of the device's memory counts as free.
  DriverStatus MemGetInfo(int ordinal, uint64_t* free_bytes, uint64_t* total_bytes) const;

  // Nanoseconds: virtual driver time on the simulated device, the monotonic clock elsewhere.
  uint64_t NowNs() const;

 private:
  Driver();

  std::unique_ptr<LoadedTable> table_;
  std::unique_ptr<DriverLibrary> library_;
  uint64_t (*virtual_time_ns_)() = nullptr;
  std::vector<int> devices_;  // CUdevice by ordinal
};

}  // namespace weir

#endif  // WEIR_DRIVER_DRIVER_H_
