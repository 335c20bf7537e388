#include "tools/replay/report_text.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "tools/replay/text.h"

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
  return Fixed(scaled, whole ? 0 : (scaled < 100 ? 2 : 1)) + " " + unit->name;
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

std::string FormatCount(std::optional<double> value) {
  constexpr double kMost = 1e18;  // below 2^63
  if (value.value_or(-1) < 0) return kNoFigure;
  return WithCommas(static_cast<uint64_t>(std::llround(std::min(*value, kMost))));
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
  return ratio ? Fixed(*ratio, 3) : kNoFigure;
}

std::string FormatMicroseconds(std::optional<double> value) {
  static constexpr Unit kUnits[] = {{1e6, "s"}, {1e3, "ms"}, {1.0, "µs"}};
  return value ? InUnits(*value, kUnits) : kNoFigure;
}

std::string FormatNanoseconds(std::optional<double> value) {
  return value ? Fixed(*value, 0) + " ns" : kNoFigure;
}

}  // namespace weir::replay
