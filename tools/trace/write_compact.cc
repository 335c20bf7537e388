// The writer of the compact form.
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/trace/compact_format.h"
#include "tools/trace/readers.h"
#include "tools/trace/trace_io.h"

namespace weir::trace {
namespace {

void PutVarint(uint64_t value, std::string* out) {
  while (value >= 0x80) {
    out->push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out->push_back(static_cast<char>(value));
}

void PutFixed(uint64_t value, size_t bytes, std::string* out) {
  for (size_t i = 0; i < bytes; ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}

void PutText(const std::string& text, std::string* out) {
  const size_t bytes = std::min<size_t>(text.size(), kMaxTextBytes);
  PutVarint(bytes, out);
  out->append(text, 0, bytes);
}

// Column by column: equal things side by side compress best.
std::string Content(const Trace& trace) {
  std::string out;
  PutText(trace.name, &out);
  PutText(trace.source, &out);
  const size_t notes = std::min<size_t>(trace.notes.size(), kMaxCompactNotes);
  PutVarint(notes, &out);
  for (size_t i = 0; i < notes; ++i) PutText(trace.notes[i], &out);
  PutVarint(trace.streams.size(), &out);
  for (const TraceStream& stream : trace.streams) {
    PutVarint(stream.device, &out);
    PutVarint(stream.handle, &out);
  }
  PutVarint(trace.events.size(), &out);
  for (const TraceEvent& event : trace.events) out.push_back(static_cast<char>(event.kind));
  for (const TraceEvent& event : trace.events) PutVarint(event.stream, &out);
  uint64_t next_block = 0;
  for (const TraceEvent& event : trace.events) {
    if (event.kind == EventKind::kAlloc) {
      ++next_block;
    } else {
      PutVarint(next_block - 1 - event.block, &out);
    }
  }
  for (const TraceEvent& event : trace.events) {
    if (event.kind == EventKind::kAlloc) PutVarint(event.bytes, &out);
  }
  int64_t last_us = 0;
  for (const TraceEvent& event : trace.events) {
    const uint64_t delta =
        static_cast<uint64_t>(event.time_us) - static_cast<uint64_t>(last_us);  // may wrap
    PutVarint(ZigZag(static_cast<int64_t>(delta)), &out);
    last_us = event.time_us;
  }
  return out;
}

absl::Status WriteFile(const std::string& bytes, const std::string& path) {
  const std::string partial = absl::StrCat(path, ".partial-", getpid());
  FILE* file = std::fopen(partial.c_str(), "wb");
  if (file == nullptr) {
    return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
  }
  bool ok = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  ok = std::fclose(file) == 0 && ok;
  if (ok && std::rename(partial.c_str(), path.c_str()) == 0) return absl::OkStatus();
  const int error = errno;
  std::remove(partial.c_str());
  return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(error)));
}

}  // namespace

absl::Status WriteCompact(const Trace& trace, const std::string& path) {
  const std::string content = Content(trace);
  if (content.size() > kMaxCompactContentBytes) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": the trace is too large to write"));
  }
  const auto* bytes = reinterpret_cast<const Bytef*>(content.data());
  const uLong checksum = crc32_z(0, bytes, content.size());
  uLongf packed_bytes = compressBound(content.size());
  std::vector<Bytef> packed(packed_bytes);
  if (compress2(packed.data(), &packed_bytes, bytes, content.size(), Z_BEST_COMPRESSION) != Z_OK) {
    return absl::ResourceExhaustedError(absl::StrCat(path, ": no memory to compress"));
  }
  std::string file(kCompactMagic);
  file.push_back(static_cast<char>(kCompactVersion));
  PutFixed(content.size(), 8, &file);
  PutFixed(checksum, 4, &file);
  file.append(reinterpret_cast<const char*>(packed.data()), packed_bytes);
  return WriteFile(file, path);
}

}  // namespace weir::trace
