#include "tools/simcuda/address_windows.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>

namespace weir::sim {
namespace {

constexpr uint64_t kWindowBytes = uint64_t{16} << 30;

uint64_t RoundUp(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

void AddressWindows::Clear() {
  for (const auto& [base, bytes] : windows_) munmap(reinterpret_cast<void*>(base), bytes);
  windows_.clear();
  free_.clear();
}

bool AddressWindows::Contains(CUdeviceptr address) const {
  auto after = windows_.upper_bound(address);
  if (after == windows_.begin()) return false;
  const auto& [base, bytes] = *std::prev(after);
  return address - base < bytes;
}

CUdeviceptr AddressWindows::Allocate(uint64_t bytes, uint64_t alignment, CUdeviceptr hint) {
  if (bytes > (uint64_t{1} << 47)) return 0;  // more than a process has
  bytes = RoundUp(bytes, kUnit);
  alignment = std::max(alignment, kUnit);
  if (hint != 0 && hint % alignment == 0) {
    if (TakeAt(hint, bytes) || (AddWindow(hint, bytes) && TakeAt(hint, bytes))) return hint;
  }
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (const auto& [base, free_bytes] : free_) {
      const CUdeviceptr at = RoundUp(base, alignment);
      if (at - base > free_bytes || bytes > free_bytes - (at - base)) continue;
      TakeAt(at, bytes);
      return at;
    }
    // Room for the alignment, twice because a window begins at any page.
    if (!AddWindow(0, std::max(kWindowBytes, bytes + 2 * alignment))) return 0;
  }
  return 0;
}

bool AddressWindows::TakeAt(CUdeviceptr base, uint64_t bytes) {
  auto after = free_.upper_bound(base);
  if (after == free_.begin()) return false;
  const auto extent = std::prev(after);
  const CUdeviceptr begin = extent->first;
  const CUdeviceptr end = begin + extent->second;
  if (base > end || bytes > end - base) return false;
  free_.erase(extent);
  if (begin < base) free_[begin] = base - begin;
  if (base + bytes < end) free_[base + bytes] = end - (base + bytes);
  return true;
}

bool AddressWindows::AddWindow(CUdeviceptr at, uint64_t bytes) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  if (at != 0) flags |= MAP_FIXED_NOREPLACE;
  void* window = mmap(reinterpret_cast<void*>(at), bytes, PROT_NONE, flags, -1, 0);
  if (window == MAP_FAILED) return false;
  const CUdeviceptr base = reinterpret_cast<CUdeviceptr>(window);
  if (at != 0 && base != at) {  // a kernel that does not know MAP_FIXED_NOREPLACE
    munmap(window, bytes);
    return false;
  }
  windows_[base] = bytes;
  free_[base] = bytes;
  return true;
}

void AddressWindows::Free(CUdeviceptr base, uint64_t bytes) {
  bytes = RoundUp(bytes, kUnit);
  auto next = free_.lower_bound(base);
  if (next != free_.end() && base + bytes == next->first && !windows_.contains(next->first)) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin() && !windows_.contains(base)) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == base) {
      previous->second += bytes;
      return;
    }
  }
  free_[base] = bytes;
}

}  // namespace weir::sim
