// Registry: the process-wide set of driver and heaps behind the C API. Built at first use and never
// destroyed: at process exit other libraries may still free memory, and the driver may be gone.
//
// A device's heap (and with it its CUDA context) is made when the device is first used.
#ifndef WEIR_POOL_REGISTRY_H_
#define WEIR_POOL_REGISTRY_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/base/mutex.h"
#include "allocator/base/options.h"
#include "allocator/driver/driver.h"
#include "allocator/pool/device_heap.h"
#include "allocator/pool/heap_error.h"
#include "allocator/pool/passthrough_heap.h"

namespace weir {

// One device in use: exactly one of the two heaps, by the mode.
struct DeviceSlot {
  std::unique_ptr<DeviceHeap> heap;
  std::unique_ptr<PassthroughHeap> passthrough;

  // Calls fn(heap) with the one there is.
  template <typename Fn>
  auto With(Fn fn) const {
    return passthrough == nullptr ? fn(*heap) : fn(*passthrough);
  }
  const DeviceDriver& driver() const {
    return passthrough == nullptr ? heap->driver() : passthrough->driver();
  }
};

class Registry {
 public:
  // Reads the options and opens the driver if that has not been done. Null with the reason if it
  // cannot be; the reason is kept, so that later calls fail at once in the same way.
  static Registry* Get(HeapError* error);
  // Null before the first success of Get. Takes no lock.
  static Registry* Existing() { return instance_.load(std::memory_order_acquire); }
  // Adds options, later ones before earlier ones and before the environment's. An error after the
  // first success of Get. Forgets a failure that Get has kept.
  static HeapError Configure(std::string_view text);

  const Driver& driver() const { return *driver_; }
  int device_count() const { return static_cast<int>(slots_.size()); }
  const ProcessOptions& options() const { return options_; }

  // Makes the heap if the device has none yet.
  DeviceSlot* Device(int ordinal, HeapError* error);
  // Null if the device has no heap (or there is no such device). Takes no lock.
  DeviceSlot* ExistingDevice(int ordinal) const {
    if (ordinal < 0 || ordinal >= device_count()) return nullptr;
    return slots_[static_cast<size_t>(ordinal)].load(std::memory_order_acquire);
  }
  // The device whose heap may have handed out the address; null if none has.
  DeviceSlot* OwnerOf(uint64_t address) const;
  HeapError CheckOrdinal(int ordinal) const;

 private:
  Registry(std::unique_ptr<const Driver> driver, const ProcessOptions& options);
  std::unique_ptr<DeviceSlot> MakeDevice(int ordinal, HeapError* error) const;

  static std::atomic<Registry*> instance_;

  const std::unique_ptr<const Driver> driver_;
  const ProcessOptions options_;
  Mutex mu_;  // held while a heap is made
  std::vector<std::atomic<DeviceSlot*>> slots_;
};

}  // namespace weir

#endif  // WEIR_POOL_REGISTRY_H_
