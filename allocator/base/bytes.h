// Sizes in bytes and arithmetic on them.
#ifndef WEIR_BASE_BYTES_H_
#define WEIR_BASE_BYTES_H_

#include <bit>
#include <cstdint>

namespace weir {

inline constexpr uint64_t kKiB = uint64_t{1} << 10;
inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr uint64_t kGiB = uint64_t{1} << 30;

// The multiple is a power of two; the sum must not wrap (callers bound sizes first).
constexpr uint64_t AlignUp(uint64_t bytes, uint64_t multiple) {
  return (bytes + multiple - 1) & ~(multiple - 1);
}
constexpr uint64_t AlignDown(uint64_t bytes, uint64_t multiple) { return bytes & ~(multiple - 1); }
constexpr bool IsAligned(uint64_t bytes, uint64_t multiple) {
  return (bytes & (multiple - 1)) == 0;
}
// Not std::has_single_bit: without a population-count instruction it calls into libgcc.
constexpr bool IsPowerOfTwo(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

// floor(log2(value)), value > 0.
constexpr int FloorLog2(uint64_t value) { return 63 - std::countl_zero(value); }

}  // namespace weir

#endif  // WEIR_BASE_BYTES_H_
