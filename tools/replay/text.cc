#include "tools/replay/text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "allocator/base/bytes.h"

namespace weir::replay {

std::string WithCommas(uint64_t value) {
  const std::string digits = std::to_string(value);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string Mebibytes(uint64_t bytes) {
  const uint64_t tenths = (bytes * 10 + kMiB / 2) / kMiB;
  return absl::StrCat(WithCommas(tenths / 10), ".", tenths % 10, " MiB");
}

std::string Fixed(double value, int decimals) { return absl::StrFormat("%.*f", decimals, value); }

std::string ExactBytes(uint64_t bytes) {
  if (bytes != 0 && bytes % kGiB == 0) return absl::StrCat(bytes / kGiB, "GiB");
  if (bytes != 0 && bytes % kMiB == 0) return absl::StrCat(bytes / kMiB, "MiB");
  return std::to_string(bytes);
}

}  // namespace weir::replay
