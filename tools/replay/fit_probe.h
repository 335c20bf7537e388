// Probes: replays of one trace on simulated devices of given sizes, each from a fresh start.
#ifndef WEIR_TOOLS_REPLAY_FIT_PROBE_H_
#define WEIR_TOOLS_REPLAY_FIT_PROBE_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "tools/replay/fit_search.h"
#include "tools/trace/trace.h"

namespace weir::replay {

// Of the runs of a replay, `weir-replay/1`'s or those of a benchmark program.
ProbeResult ReadProbe(const nlohmann::json& runs);

// Weir in a process forked for each replay. The trace outlives the probe.
Probe WeirProbe(const trace::Trace& trace, const std::string& weir_options);

// Another allocator, by a program that lives as long as the probe.
Probe ProgramProbe(const std::string& allocator, const std::string& trace_path, uint64_t scale);

// What the trace requests at its peak of the device of which it requests the most.
uint64_t PeakOfOneDevice(const trace::Trace& trace);

}  // namespace weir::replay

#endif  // WEIR_TOOLS_REPLAY_FIT_PROBE_H_
