#include "bench/trace_ops.h"

#include "bench/cases.h"

namespace weir::bench {

std::vector<TraceOp> MakeTraceOps(const trace::Trace& trace) {
  std::vector<Stream> streams;
  for (size_t i = 0; i < trace.streams.size(); ++i) {
    streams.push_back(trace.streams[i].handle == 0 ? nullptr : StreamAt(i));
  }
  std::vector<TraceOp> allocations(trace.blocks);
  std::vector<bool> live(trace.blocks, false);
  std::vector<TraceOp> ops;
  ops.reserve(trace.events.size());
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const trace::TraceEvent& event = trace.events[i];
    TraceOp& allocation = allocations[event.block];
    Stream const stream = streams[event.stream];
    if (event.kind == trace::EventKind::kAlloc) {
      allocation = {event.kind, event.block, event.bytes, stream, stream, i};
      live[event.block] = true;
      ops.push_back(allocation);
      continue;
    }
    TraceOp op = allocation;
    op.kind = event.kind;
    op.other = stream;
    op.event = i;
    if (event.kind == trace::EventKind::kFree) live[event.block] = false;
    if (event.kind == trace::EventKind::kUse && (!Info().record_use || stream == op.stream)) {
      continue;
    }
    ops.push_back(op);
  }
  for (TraceOp op : allocations) {
    if (!live[op.block]) continue;
    op.kind = trace::EventKind::kFree;
    op.event = trace.events.size();
    ops.push_back(op);
  }
  return ops;
}

}  // namespace weir::bench
