// The numbers of the compact form that its reader and writer share; README.md describes it.
#ifndef WEIR_TOOLS_TRACE_COMPACT_FORMAT_H_
#define WEIR_TOOLS_TRACE_COMPACT_FORMAT_H_

#include <cstddef>
#include <cstdint>

namespace weir::trace {

inline constexpr uint8_t kCompactVersion = 1;
// Magic, version, content bytes (8, little-endian), CRC-32 of the content (4, little-endian).
inline constexpr size_t kCompactHeaderBytes = 8 + 1 + 8 + 4;
inline constexpr uint64_t kMaxCompactContentBytes = uint64_t{512} << 20;
inline constexpr uint64_t kMaxCompactNotes = 64;

// Small negative numbers become small unsigned ones.
constexpr uint64_t ZigZag(int64_t value) {
  return static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63);
}
constexpr int64_t UnZigZag(uint64_t value) {
  return static_cast<int64_t>(value >> 1 ^ (0 - (value & 1)));
}

}  // namespace weir::trace

#endif  // WEIR_TOOLS_TRACE_COMPACT_FORMAT_H_
