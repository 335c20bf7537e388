// AddressSpace: one reservation of device addresses, dealt out in chunks of 1 GiB.
//
// Addresses cost nothing, so the reservation is several times the device's memory: arenas of many
// streams can each be as large as the device. Guarded by the space lock.
#ifndef WEIR_VMM_ADDRESS_SPACE_H_
#define WEIR_VMM_ADDRESS_SPACE_H_

#include <cstdint>
#include <vector>

#include "allocator/base/bytes.h"
#include "allocator/driver/device_driver.h"

namespace weir {

class AddressSpace {
 public:
  static constexpr uint64_t kChunk = kGiB;

  // Reserves `bytes`, rounded up to chunks; when the driver refuses, half of it, down to `least`.
  DriverStatus Reserve(const DeviceDriver& driver, uint64_t bytes, uint64_t least);

  // Takes at least `bytes` of adjacent free chunks: those that begin at `preferred` if they are
  // free (so that an arena's regions join), else the lowest. False if there are none.
  bool Take(uint64_t bytes, uint64_t preferred, uint64_t* begin, uint64_t* taken);
  // Gives back what the last Take took.
  void Return(uint64_t begin, uint64_t bytes);

  uint64_t begin() const { return begin_; }
  uint64_t bytes() const { return used_.size() * kChunk; }

 private:
  bool IsFree(uint64_t first, uint64_t count) const;

  uint64_t begin_ = 0;
  std::vector<bool> used_;
};

}  // namespace weir

#endif  // WEIR_VMM_ADDRESS_SPACE_H_
