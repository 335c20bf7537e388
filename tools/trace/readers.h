// One reader per source format; read_trace.cc chooses. Each takes the whole input and reports the
// first thing that is wrong, with its position.
#ifndef WEIR_TOOLS_TRACE_READERS_H_
#define WEIR_TOOLS_TRACE_READERS_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "tools/trace/input.h"
#include "tools/trace/trace.h"

namespace weir::trace {

absl::StatusOr<Trace> ReadSnapshotPickle(Input& input);  // torch.cuda.memory._dump_snapshot()
absl::StatusOr<Trace> ReadNeutralCsv(Input& input);      // t_us,op,id,size,stream,device
absl::StatusOr<Trace> ReadRmmLog(Input& input);          // Thread,Time,Action,Pointer,Size,Stream
absl::StatusOr<Trace> ReadKinetoJson(Input& input);      // [memory] events of a profile
absl::StatusOr<Trace> ReadCompact(Input& input);         // .weirtrace, see README.md

// How the formats begin.
inline constexpr std::string_view kCompactMagic = "WEIRTRC\n";
inline constexpr std::string_view kNeutralCsvHeader = "t_us,op,id,size,stream,device";
inline constexpr std::string_view kRmmLogHeader = "Thread,Time,Action,Pointer,Size,Stream";

}  // namespace weir::trace

#endif  // WEIR_TOOLS_TRACE_READERS_H_
