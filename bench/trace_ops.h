// A trace as calls of the program's allocator: what the trace cases time, and what is replayed for
// `weir fit`.
#ifndef WEIR_BENCH_TRACE_OPS_H_
#define WEIR_BENCH_TRACE_OPS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/allocator.h"
#include "bench/cases.h"
#include "tools/trace/trace.h"

namespace weir::bench {

struct TraceOp {
  trace::EventKind kind = trace::EventKind::kAlloc;
  uint32_t block = 0;
  size_t bytes = 0;         // of the allocation, for frees too
  Stream stream = nullptr;  // of the allocation
  Stream other = nullptr;   // of a use; of a free on another stream
  uint64_t event = 0;       // of the trace; their number for the frees that close it
};

// The trace's events, closed by frees of what it leaves live. Uses that the allocator cannot be
// told of are left out. Creates the streams.
std::vector<TraceOp> MakeTraceOps(const trace::Trace& trace);

// Makes the call; `live` is by block. False if an allocation failed. Inline, because it is timed.
inline bool RunTraceOp(const TraceOp& op, std::vector<void*>* live) {
  void*& block = (*live)[op.block];
  switch (op.kind) {
    case trace::EventKind::kAlloc:
      block = Allocate(op.bytes, op.stream);
      return block != nullptr;
    case trace::EventKind::kFree:
      if (op.other != op.stream) {
        FreeAfterUse(block, op.bytes, op.stream, op.other);
      } else {
        Free(block, op.bytes, op.stream);
      }
      block = nullptr;
      return true;
    case trace::EventKind::kUse:
      RecordUse(block, op.other);
      return true;
  }
  return true;
}

}  // namespace weir::bench

#endif  // WEIR_BENCH_TRACE_OPS_H_
