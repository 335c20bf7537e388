// How traces are replayed: what the command line says, and what a child process is told.
#ifndef WEIR_TOOLS_REPLAY_REPLAY_OPTIONS_H_
#define WEIR_TOOLS_REPLAY_REPLAY_OPTIONS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"

namespace weir::replay {

struct ReplayOptions {
  bool simulated = true;
  int device = 0;             // the first one, of a real driver
  uint64_t memory_bytes = 0;  // 0 = all of a real device
  bool one_stream = false;    // all of a device's streams become one
  uint64_t passes = 1;
  bool verify = false;
  bool timeline = false;

  std::string DeviceName() const { return simulated ? "sim" : absl::StrCat("cuda:", device); }
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ReplayOptions, simulated, device, memory_bytes, one_stream,
                                   passes, verify, timeline)

}  // namespace weir::replay

#endif  // WEIR_TOOLS_REPLAY_REPLAY_OPTIONS_H_
