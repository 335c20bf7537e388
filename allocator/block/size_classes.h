// Size classes of small requests: eight per doubling, so that at most 12.5 % is lost to rounding.
//
// 512, 1024, ... 4096 in steps of 512, then 8 steps to each next power of two, up to 32 KiB. All
// are multiples of 512, the alignment that CUDA programs rely on. Objects are cut from spans of 128
// KiB.
#ifndef WEIR_BLOCK_SIZE_CLASSES_H_
#define WEIR_BLOCK_SIZE_CLASSES_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "allocator/base/bytes.h"

namespace weir {

inline constexpr uint64_t kSpanBytes = 128 * kKiB;
inline constexpr uint64_t kSpanAlignment =
    32 * kKiB;  // so that it fills slots of the pointer index
inline constexpr uint64_t kMaxSmallBytes = 32 * kKiB;  // larger requests are blocks of their own
inline constexpr uint64_t kMaxSmallArenaBytes = 256 * kKiB;  // larger ones go to the large arena
inline constexpr int kNumSizeClasses = 32;

// 0 <= bytes <= kMaxSmallBytes.
constexpr int SizeClassOf(uint64_t bytes) {
  if (bytes <= 4 * kKiB) return bytes == 0 ? 0 : static_cast<int>((bytes - 1) / 512);
  const int doubling = FloorLog2(bytes - 1);  // 12, 13, 14
  return 8 * (doubling - 11) + static_cast<int>(((bytes - 1) >> (doubling - 3)) & 7);
}

constexpr uint64_t SizeOfClass(int size_class) {
  if (size_class < 8) return static_cast<uint64_t>(size_class + 1) * 512;
  const int doubling = 11 + size_class / 8;
  return (uint64_t{1} << doubling) + (static_cast<uint64_t>(size_class % 8 + 1) << (doubling - 3));
}

// offset / SizeOfClass(size_class) for offsets within a span, by multiplication.
constexpr uint32_t ObjectOfOffset(int size_class, uint64_t offset) {
  constexpr auto kReciprocals = [] {
    std::array<uint64_t, kNumSizeClasses> reciprocals{};
    for (int c = 0; c < kNumSizeClasses; ++c) {
      reciprocals[static_cast<size_t>(c)] = (uint64_t{1} << 32) / SizeOfClass(c) + 1;
    }
    return reciprocals;
  }();
  return static_cast<uint32_t>(offset * kReciprocals[static_cast<size_t>(size_class)] >> 32);
}

constexpr uint32_t ObjectsPerSpan(int size_class) {
  return static_cast<uint32_t>(kSpanBytes / SizeOfClass(size_class));
}

}  // namespace weir

#endif  // WEIR_BLOCK_SIZE_CLASSES_H_
