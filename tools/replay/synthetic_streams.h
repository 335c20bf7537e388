// Streams for traces that have one: what a program would ask of the allocator that spread the same
// requests over four.
#ifndef WEIR_TOOLS_REPLAY_SYNTHETIC_STREAMS_H_
#define WEIR_TOOLS_REPLAY_SYNTHETIC_STREAMS_H_

#include "tools/replay/replay_options.h"
#include "tools/trace/trace.h"

namespace weir::replay {

// Replaces the trace's streams by four per device, by the size class of a request (its highest bit,
// modulo 4) or in turns of 50 requests. A block is freed on its own stream, and uses on other
// streams become uses on its own, which are none. Events keep their numbers.
void UseSyntheticStreams(SyntheticStreams rule, trace::Trace* trace);

}  // namespace weir::replay

#endif  // WEIR_TOOLS_REPLAY_SYNTHETIC_STREAMS_H_
