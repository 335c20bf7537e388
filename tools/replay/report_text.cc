#include "tools/replay/report_text.h"

#include <charconv>
#include <cmath>
#include <cstddef>

namespace weir::replay {
namespace {

struct Unit {
  double size;
  const char* name;
};

// The largest unit that `value` reaches, with three significant figures or so.
template <size_t N>
std::string InUnits(double value, const Unit (&units)[N]) {
  const Unit* unit = &units[N - 1];
  for (const Unit& candidate : units) {
    if (value >= candidate.size) {
      unit = &candidate;
      break;
    }
  }
  const double scaled = value / unit->size;
  const bool whole = scaled == std::floor(scaled) || scaled >= 1000;
  return FormatFixed(scaled, whole ? 0 : (scaled < 100 ? 2 : 1)) + " " + unit->name;
}

}  // namespace

std::string EscapeHtml(const std::string& text) {
  std::string escaped;
  escaped.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f) {
          escaped += "\xEF\xBF\xBD";
        } else {
          escaped += c;
        }
    }
  }
  return escaped;
}

std::string FormatFixed(double value, int decimals) {
  if (!std::isfinite(value)) return kNoFigure;
  char buffer[400];  // the widest double has 309 digits before the point
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed, decimals);
  return std::string(buffer, end.ptr);
}

std::string FormatCount(std::optional<double> value) {
  if (!value) return kNoFigure;
  std::string digits = FormatFixed(*value, 0);
  const ptrdiff_t first = !digits.empty() && digits.front() == '-' ? 1 : 0;
  for (auto at = static_cast<ptrdiff_t>(digits.size()) - 3; at > first; at -= 3) {
    if (digits.back() >= '0' && digits.back() <= '9') digits.insert(static_cast<size_t>(at), ",");
  }
  return digits;
}

std::string FormatBytes(std::optional<double> bytes) {
  static constexpr Unit kUnits[] = {{1099511627776.0, "TiB"},
                                    {1073741824.0, "GiB"},
                                    {1048576.0, "MiB"},
                                    {1024.0, "KiB"},
                                    {1.0, "B"}};
  return bytes ? InUnits(*bytes, kUnits) : kNoFigure;
}

std::string FormatRatio(std::optional<double> ratio) {
  return ratio ? FormatFixed(*ratio, 3) : kNoFigure;
}

std::string FormatMicroseconds(std::optional<double> value) {
  static constexpr Unit kUnits[] = {{1e6, "s"}, {1e3, "ms"}, {1.0, "µs"}};
  return value ? InUnits(*value, kUnits) : kNoFigure;
}

std::string FormatNanoseconds(std::optional<double> value) {
  return value ? FormatFixed(*value, 0) + " ns" : kNoFigure;
}

}  // namespace weir::replay
