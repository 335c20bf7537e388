#include "tools/replay/synthetic_streams.h"

#include <bit>
#include <cstdint>
#include <vector>

namespace weir::replay {
namespace {

constexpr uint16_t kStreams = 4;
constexpr uint64_t kTurn = 50;  // requests

uint16_t StreamOf(SyntheticStreams rule, uint64_t bytes, uint64_t request) {
  if (rule == SyntheticStreams::kTurns) return static_cast<uint16_t>(request / kTurn % kStreams);
  return static_cast<uint16_t>((std::bit_width(bytes | 1) - 1) % kStreams);
}

}  // namespace

void UseSyntheticStreams(SyntheticStreams rule, trace::Trace* trace) {
  if (rule == SyntheticStreams::kNone) return;
  std::vector<int> first_of_device(trace::kMaxDevices, -1);
  std::vector<uint16_t> of_block(trace->blocks);
  trace->streams.clear();
  uint64_t requests = 0;
  for (trace::TraceEvent& event : trace->events) {
    int& first = first_of_device[event.device];
    if (first < 0) {
      first = static_cast<int>(trace->streams.size());
      for (uint64_t i = 1; i <= kStreams; ++i) trace->streams.push_back({i, event.device});
    }
    if (event.kind == trace::EventKind::kAlloc) {
      of_block[event.block] =
          static_cast<uint16_t>(first + StreamOf(rule, event.bytes, requests++));
    }
    event.stream = of_block[event.block];
  }
}

}  // namespace weir::replay
