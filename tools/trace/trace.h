// Trace: the allocation calls of a program, in the order they were made, in one form for all
// sources. Data only: no addresses, no contents.
//
// Invariants (TraceBuilder establishes them for every reader, so users need not check):
//  - blocks are numbered 0, 1, 2, ... in the order of their allocation, and never reused;
//  - a block is used and freed only while it is live, and freed at most once;
//  - stream indexes point into `streams`, device ordinals are below kMaxDevices;
//  - the order of `events` is the order of the calls. Times only inform; they may stand still.
#ifndef WEIR_TOOLS_TRACE_TRACE_H_
#define WEIR_TOOLS_TRACE_TRACE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace weir::trace {

// What a trace may hold at most. Files come from anywhere: sizes in them are claims, and memory is
// taken only for what was really read.
inline constexpr uint64_t kMaxInputBytes = uint64_t{4} << 30;  // of a file, decompressed
inline constexpr uint64_t kMaxEvents = uint64_t{16} << 20;
inline constexpr uint64_t kMaxBlockBytes = uint64_t{1} << 50;
inline constexpr uint64_t kMaxStreams = 4096;
inline constexpr uint64_t kMaxDevices = 64;
inline constexpr uint64_t kMaxTextBytes = 4096;  // a line of a text format, or a name

enum class EventKind : uint8_t {
  kAlloc = 0,  // on `stream`
  kFree = 1,   // on `stream`, which need not be the stream of the allocation
  kUse = 2,    // `stream`, another one than the block's, works with the block (record_stream)
};

struct TraceEvent {
  int64_t time_us = 0;
  uint64_t bytes = 0;  // requested; 0 except for kAlloc
  uint32_t block = 0;
  uint16_t stream = 0;  // index into Trace::streams
  uint8_t device = 0;   // ordinal; equal to the stream's device
  EventKind kind = EventKind::kAlloc;
};
static_assert(sizeof(TraceEvent) == 24);

struct TraceStream {
  uint64_t handle = 0;  // as the source named it; 0 is the legacy default stream
  uint8_t device = 0;
};

struct Trace {
  std::string name;    // the file's name without folder and format endings
  std::string source;  // the format it was first read from, e.g. "pytorch-snapshot"
  std::vector<TraceStream> streams;
  std::vector<TraceEvent> events;
  uint64_t blocks = 0;             // = allocations
  std::vector<std::string> notes;  // what the reader inferred or left out, one line each
};

struct TraceSummary {
  uint64_t allocations = 0;
  uint64_t frees = 0;
  uint64_t uses = 0;
  uint64_t live_at_end = 0;
  uint64_t peak_requested_bytes = 0;  // over the whole trace; sum over devices of each one's peak
  int devices = 0;                    // highest ordinal + 1
};
TraceSummary Summarize(const Trace& trace);

}  // namespace weir::trace

#endif  // WEIR_TOOLS_TRACE_TRACE_H_
