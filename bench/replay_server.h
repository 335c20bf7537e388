// One trace, replayed on simulated devices of the sizes that are asked for: what `weir fit` starts
// for allocators other than Weir.
//
// Each line "BYTES PASSES" on stdin is answered by a line on stdout: {"runs": [...]}, one object
// per pass up to the first that does not complete, with the keys of weir-replay/1 that are known
// here: pass, completed, failed_event, error, driver_calls, driver_time_us, peak_reserved_bytes. Or
// {"error": TEXT}. Each replay is a process of its own, so that the allocator starts anew.
#ifndef WEIR_BENCH_REPLAY_SERVER_H_
#define WEIR_BENCH_REPLAY_SERVER_H_

#include <cstdint>
#include <string>

namespace weir::bench {

// Every request of the trace is multiplied by `scale`. Before anything of CUDA is used. Returns the
// exit status, at the end of stdin.
int ServeReplays(const std::string& trace_path, uint64_t scale);

}  // namespace weir::bench

#endif  // WEIR_BENCH_REPLAY_SERVER_H_
