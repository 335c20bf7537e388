// The neutral CSV and the logs of RMM's logging resource adaptor.
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/trace/fields.h"
#include "tools/trace/readers.h"
#include "tools/trace/trace_builder.h"

namespace weir::trace {
namespace {

// Calls one(fields) for each line after the header. An empty last line is allowed.
template <typename OneLine>
absl::Status ForEachLine(Input& input, std::string_view header, OneLine one) {
  std::string line;
  if (!input.ReadLine(&line)) return input.status();
  if (line != header) {
    return input.ErrorInLine(
        absl::StrCat("the header is not ", absl::string_view(header.data(), header.size())));
  }
  while (input.ReadLine(&line)) {
    if (line.empty()) continue;
    if (absl::Status s = one(SplitCommas(line)); !s.ok()) {
      return input.ErrorInLine(std::string(s.message()));
    }
  }
  return input.status();
}

absl::Status Invalid(std::string_view what, std::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat(absl::string_view(what.data(), what.size()), ": ",
                                                 absl::string_view(text.data(), text.size())));
}

// "HH:MM:SS.microseconds" (or a colon before the microseconds) as microseconds of the day.
bool ParseClock(std::string_view text, int64_t* time_us) {
  uint64_t hours = 0, minutes = 0, seconds = 0, micros = 0;
  if (text.size() < 9 || text[2] != ':' || text[5] != ':') return false;
  if (!ParseUnsigned(text.substr(0, 2), &hours) || !ParseUnsigned(text.substr(3, 2), &minutes) ||
      !ParseUnsigned(text.substr(6, 2), &seconds) || (text[8] != '.' && text[8] != ':') ||
      text.size() > 15 || !ParseUnsigned(text.substr(9), &micros)) {
    return false;
  }
  *time_us = static_cast<int64_t>(((hours * 60 + minutes) * 60 + seconds) * 1000000 + micros);
  return true;
}

}  // namespace

absl::StatusOr<Trace> ReadNeutralCsv(Input& input) {
  TraceBuilder builder;
  const auto one = [&](const std::vector<std::string_view>& fields) {
    if (fields.size() != 6) {
      return absl::InvalidArgumentError(absl::StrCat(fields.size(), " fields instead of 6"));
    }
    int64_t time_us = 0;
    uint64_t id = 0, size = 0, stream = 0, device = 0;
    if (!ParseTimeUs(fields[0], &time_us)) return Invalid("t_us is no number", fields[0]);
    if (!ParseUnsigned(fields[2], &id)) return Invalid("id is no positive number", fields[2]);
    if (!ParseUnsigned(fields[3], &size)) return Invalid("size is no positive number", fields[3]);
    if (!ParseAddress(fields[4], &stream)) return Invalid("stream is no number", fields[4]);
    if (!ParseUnsigned(fields[5], &device)) return Invalid("device is no number", fields[5]);
    const TraceBuilder::Key key{0, id};
    if (fields[1] == "a") return builder.Alloc(key, size, device, stream, time_us);
    if (fields[1] == "f") return builder.Free(key, stream, time_us);
    if (fields[1] == "u") return builder.Use(key, stream, time_us);
    return Invalid("op is none of a (allocate), f (free), u (use)", fields[1]);
  };
  if (absl::Status s = ForEachLine(input, kNeutralCsvHeader, one); !s.ok()) return s;
  return builder.Finish("csv");
}

absl::StatusOr<Trace> ReadRmmLog(Input& input) {
  TraceBuilder builder;
  uint64_t failures = 0;
  const auto one = [&](const std::vector<std::string_view>& fields) {
    if (fields.size() != 6) {
      return absl::InvalidArgumentError(absl::StrCat(fields.size(), " fields instead of 6"));
    }
    int64_t time_us = 0;
    uint64_t pointer = 0, size = 0, stream = 0;
    if (!ParseClock(fields[1], &time_us)) return Invalid("Time is no time of day", fields[1]);
    if (fields[3] != "(nil)" && !ParseAddress(fields[3], &pointer)) {
      return Invalid("Pointer is no number", fields[3]);
    }
    if (!ParseUnsigned(fields[4], &size)) return Invalid("Size is no positive number", fields[4]);
    if (fields[5] != "(nil)" && !ParseAddress(fields[5], &stream)) {
      return Invalid("Stream is no number", fields[5]);
    }
    const TraceBuilder::Key key{0, pointer};
    if (fields[2] == "allocate failure") {
      ++failures;
      return absl::OkStatus();
    }
    const bool allocate = fields[2] == "allocate";
    if (!allocate && fields[2] != "free") {
      return Invalid("Action is none of allocate, free, allocate failure", fields[2]);
    }
    if (pointer == 0 && size == 0) return absl::OkStatus();  // 0 bytes are a null pointer in RMM
    return allocate ? builder.Alloc(key, size, 0, stream, time_us)
                    : builder.Free(key, stream, time_us);
  };
  if (absl::Status s = ForEachLine(input, kRmmLogHeader, one); !s.ok()) return s;
  if (failures > 0) {
    builder.AddNote(absl::StrCat(failures, " failed allocations are left out"));
  }
  return builder.Finish("rmm-log");
}

}  // namespace weir::trace
