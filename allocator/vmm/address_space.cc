#include "allocator/vmm/address_space.h"

namespace weir {

DriverStatus AddressSpace::Reserve(const DeviceDriver& driver, uint64_t bytes, uint64_t least) {
  DriverStatus status;
  for (uint64_t size = AlignUp(bytes, kChunk);; size = AlignUp(size / 2, kChunk)) {
    status = driver.ReserveAddress(size, kChunk, &begin_);
    if (status.ok()) {
      used_.assign(size / kChunk, false);
      return status;
    }
    if (size <= AlignUp(least, kChunk)) return status;
  }
}

bool AddressSpace::IsFree(uint64_t first, uint64_t count) const {
  if (first + count > used_.size()) return false;
  for (uint64_t i = first; i < first + count; ++i) {
    if (used_[i]) return false;
  }
  return true;
}

bool AddressSpace::Take(uint64_t bytes, uint64_t preferred, uint64_t* begin, uint64_t* taken) {
  const uint64_t count = AlignUp(bytes, kChunk) / kChunk;
  uint64_t first = used_.size();
  if (preferred >= begin_ && IsAligned(preferred - begin_, kChunk) &&
      IsFree((preferred - begin_) / kChunk, count)) {
    first = (preferred - begin_) / kChunk;
  } else {
    for (first = 0; first + count <= used_.size() && !IsFree(first, count);) ++first;
  }
  if (first + count > used_.size()) return false;
  for (uint64_t i = first; i < first + count; ++i) used_[i] = true;
  *begin = begin_ + first * kChunk;
  *taken = count * kChunk;
  return true;
}

void AddressSpace::Return(uint64_t begin, uint64_t bytes) {
  for (uint64_t at = begin; at < begin + bytes; at += kChunk) used_[(at - begin_) / kChunk] = false;
}

}  // namespace weir
