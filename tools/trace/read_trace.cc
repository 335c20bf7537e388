// Tells the format of a file by its content and calls the reader for it.
#include <memory>
#include <string>
#include <string_view>

#include "tools/trace/readers.h"
#include "tools/trace/trace_io.h"

namespace weir::trace {
namespace {

using Reader = absl::StatusOr<Trace> (*)(Input&);

// Null for an unknown format.
Reader ChooseReader(std::string_view start) {
  if (start.starts_with(kCompactMagic)) return ReadCompact;
  // Protocol 2 and later say so; the older ones begin with the opcodes of an empty dictionary.
  if (start.size() >= 2 && start[0] == '\x80') return ReadSnapshotPickle;
  if (start.starts_with("(d") || start.starts_with("}")) return ReadSnapshotPickle;
  if (start.starts_with(kNeutralCsvHeader)) return ReadNeutralCsv;
  if (start.starts_with(kRmmLogHeader)) return ReadRmmLog;
  const size_t first = start.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && (start[first] == '{' || start[first] == '[')) {
    return ReadKinetoJson;
  }
  return nullptr;
}

}  // namespace

std::string TraceNameOf(const std::string& path) {
  std::string name = path.substr(path.find_last_of('/') + 1);
  for (std::string_view ending :
       {".gz", ".pickle", ".csv", ".json", ".log", ".txt", ".weirtrace"}) {
    if (name.size() > ending.size() && std::string_view(name).ends_with(ending)) {
      name.resize(name.size() - ending.size());
    }
  }
  return name.substr(0, kMaxTextBytes);
}

absl::StatusOr<Trace> ReadTrace(const std::string& path) {
  absl::StatusOr<std::unique_ptr<Input>> input = Input::Open(path);
  if (!input.ok()) return input.status();
  absl::StatusOr<std::string_view> start = (*input)->Peek(kMaxTextBytes);
  if (!start.ok()) return start.status();
  if (start->empty()) return (*input)->ErrorHere("the file is empty");
  const Reader reader = ChooseReader(*start);
  if (reader == nullptr) {
    return (*input)->ErrorHere(
        "unknown format; known are PyTorch memory snapshots (pickle), Weir's compact form, "
        "t_us,op,id,size,stream,device CSV, RMM logs and kineto JSON, each also gzip'd");
  }
  absl::StatusOr<Trace> trace = reader(**input);
  if (!trace.ok()) return trace;
  if (trace->events.empty()) {
    return (*input)->ErrorHere("no allocation events in it; was memory history recorded?");
  }
  trace->name = TraceNameOf(path);
  return trace;
}

}  // namespace weir::trace
