// Fields of the line-oriented formats: splitting and numbers, strict.
#ifndef WEIR_TOOLS_TRACE_FIELDS_H_
#define WEIR_TOOLS_TRACE_FIELDS_H_

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weir::trace {

inline std::vector<std::string_view> SplitCommas(std::string_view line) {
  std::vector<std::string_view> fields;
  while (true) {
    const size_t comma = line.find(',');
    fields.push_back(line.substr(0, comma));
    if (comma == std::string_view::npos) return fields;
    line.remove_prefix(comma + 1);
  }
}

// Decimal; negative numbers are refused.
inline bool ParseUnsigned(std::string_view text, uint64_t* value, int base = 10) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value, base);
  return error == std::errc() && end == text.data() + text.size();
}

// Hexadecimal with 0x, else decimal.
inline bool ParseAddress(std::string_view text, uint64_t* value) {
  if (text.starts_with("0x")) return ParseUnsigned(text.substr(2), value, 16);
  return ParseUnsigned(text, value);
}

// A number of microseconds, perhaps with a fraction, which is dropped.
inline bool ParseTimeUs(std::string_view text, int64_t* value) {
  double time = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), time);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  if (!(std::fabs(time) < 9e18)) return false;
  *value = static_cast<int64_t>(time);
  return true;
}

}  // namespace weir::trace

#endif  // WEIR_TOOLS_TRACE_FIELDS_H_
