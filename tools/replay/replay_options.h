// How a trace is replayed.
#ifndef WEIR_TOOLS_REPLAY_REPLAY_OPTIONS_H_
#define WEIR_TOOLS_REPLAY_REPLAY_OPTIONS_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace weir::replay {

// Streams that replace those of the trace.
enum class SyntheticStreams { kNone, kSize, kTurns };

struct ReplayOptions {
  bool simulated = true;
  int device = 0;             // the first one, of a real driver
  uint64_t memory_bytes = 0;  // 0 = all of a real device
  std::string weir_options;   // as WEIR_CONF has them, before those of the environment
  bool one_stream = false;    // all of a device's streams become one
  SyntheticStreams synthetic_streams = SyntheticStreams::kNone;
  uint64_t lag = 0;  // events from a free to the end of the work before it (simulated device)
  uint64_t passes = 1;
  bool verify = false;
  bool timeline = false;

  std::string StreamsMode() const {
    if (synthetic_streams == SyntheticStreams::kSize) return "size";
    if (synthetic_streams == SyntheticStreams::kTurns) return "turns";
    return one_stream ? "one" : "keep";
  }
  std::string DeviceName() const { return simulated ? "sim" : absl::StrCat("cuda:", device); }
};

}  // namespace weir::replay

#endif  // WEIR_TOOLS_REPLAY_REPLAY_OPTIONS_H_
