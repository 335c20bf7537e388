// How the report writes text and figures that may be missing: escaped HTML, bytes, counts, ratios.
// Pure functions; a negative count is no figure.
#ifndef WEIR_TOOLS_REPLAY_REPORT_TEXT_H_
#define WEIR_TOOLS_REPLAY_REPORT_TEXT_H_

#include <optional>
#include <string>

namespace weir::replay {

// As text of HTML, and as a value between quotes: & < > " ' are replaced; so are control
// characters, which HTML does not allow (by U+FFFD).
std::string EscapeHtml(const std::string& text);

// What a missing figure looks like.
inline constexpr const char* kNoFigure = "–";

std::string FormatCount(std::optional<double> value);         // 1,234,567
std::string FormatBytes(std::optional<double> bytes);         // 23.64 GiB, 512 MiB, 96 KiB
std::string FormatRatio(std::optional<double> ratio);         // 1.021
std::string FormatMicroseconds(std::optional<double> value);  // 820 µs, 1.24 ms, 3.05 s
std::string FormatNanoseconds(std::optional<double> value);   // 41 ns

}  // namespace weir::replay

#endif  // WEIR_TOOLS_REPLAY_REPORT_TEXT_H_
