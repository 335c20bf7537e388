// Numbers as people read them.
#ifndef WEIR_TOOLS_REPLAY_TEXT_H_
#define WEIR_TOOLS_REPLAY_TEXT_H_

#include <cstdint>
#include <string>

namespace weir::replay {

std::string WithCommas(uint64_t value);         // 1,234,567
std::string Mebibytes(uint64_t bytes);          // "24,204.1 MiB"
std::string Fixed(double value, int decimals);  // "1.030"
// The shortest exact form that WEIR_CONF reads: "80GiB", "1537MiB", "123456".
std::string ExactBytes(uint64_t bytes);

}  // namespace weir::replay

#endif  // WEIR_TOOLS_REPLAY_TEXT_H_
