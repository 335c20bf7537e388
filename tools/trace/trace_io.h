// Traces from and to files.
#ifndef WEIR_TOOLS_TRACE_TRACE_IO_H_
#define WEIR_TOOLS_TRACE_TRACE_IO_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/trace/trace.h"

namespace weir::trace {

// Reads a trace in any known format, told by its content. An error is one line: the file, the
// place, what is wrong. Any file may be given: nothing in it is trusted, executed or followed.
absl::StatusOr<Trace> ReadTrace(const std::string& path);

// A trace's name: the file's without folder and the endings of known formats.
std::string TraceNameOf(const std::string& path);

// Writes the compact form. The file appears whole or not at all.
absl::Status WriteCompact(const Trace& trace, const std::string& path);

}  // namespace weir::trace

#endif  // WEIR_TOOLS_TRACE_TRACE_IO_H_
