#include "tests/trace/trace_files.h"

#include <unistd.h>
#include <zlib.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace weir::trace {

TempFile::TempFile(const std::string& content, const std::string& ending) {
  path_ = "/tmp/weir-trace-XXXXXX" + ending;
  const int file = mkstemps(path_.data(), static_cast<int>(ending.size()));
  if (file < 0) throw std::runtime_error("no temporary file");
  close(file);
  std::ofstream(path_, std::ios::binary) << content;
}

TempFile::~TempFile() { std::remove(path_.c_str()); }

std::string Gzip(const std::string& content) {
  z_stream stream = {};
  constexpr int kGzip = 16 + MAX_WBITS;
  if (deflateInit2(&stream, 6, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::runtime_error("deflateInit2");
  }
  std::string packed(deflateBound(&stream, content.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  const int result = deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  if (result != Z_STREAM_END) throw std::runtime_error("deflate");
  return packed;
}

std::string ReadWhole(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::string ErrorOf(const std::string& content) {
  const TempFile file(content);
  const absl::StatusOr<Trace> trace = ReadTrace(file.path());
  if (trace.ok()) return "";
  std::string text(trace.status().message());
  if (const size_t at = text.find(file.path()); at != std::string::npos) {
    text.replace(at, file.path().size(), "FILE");
  }
  return text;
}

Trace ReadContent(const std::string& content) {
  const TempFile file(content);
  absl::StatusOr<Trace> trace = ReadTrace(file.path());
  if (!trace.ok()) throw std::runtime_error(std::string(trace.status().message()));
  return *std::move(trace);
}

std::string EventText(const Trace& trace) {
  std::string text;
  for (const TraceEvent& event : trace.events) {
    if (!text.empty()) text += ' ';
    text += "afu"[static_cast<int>(event.kind)];
    text += std::to_string(event.block);
    if (event.kind == EventKind::kAlloc) text += ":" + std::to_string(event.bytes);
    text += "@" + std::to_string(event.stream);
  }
  return text;
}

namespace pickle {
namespace {

std::string Fixed(uint64_t value, int bytes) {
  std::string raw;
  for (int i = 0; i < bytes; ++i) raw += static_cast<char>(value >> (8 * i));
  return raw;
}

}  // namespace

std::string Text(const std::string& text) { return "X" + Fixed(text.size(), 4) + text; }

std::string Number(int64_t value) {
  if (value >= INT32_MIN && value <= INT32_MAX) return "J" + Fixed(static_cast<uint64_t>(value), 4);
  return "\x8a\x08" + Fixed(static_cast<uint64_t>(value), 8);
}

std::string List(const std::vector<std::string>& items) {
  std::string text = "](";
  for (const std::string& item : items) text += item;
  return text + "e";
}

std::string Dict(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string text = "}(";
  for (const auto& [key, value] : entries) text += Text(key) + value;
  return text + "u";
}

std::string File(const std::string& root) { return "\x80\x02" + root + "."; }

std::string Event(const std::string& action, int64_t address, int64_t size, int64_t stream,
                  int64_t time_us) {
  return Dict({{"action", Text(action)},
               {"addr", Number(address)},
               {"size", Number(size)},
               {"stream", Number(stream)},
               {"time_us", Number(time_us)},
               {"frames", List({})}});
}

std::string Snapshot(const std::vector<std::string>& events,
                     const std::vector<std::string>& segments) {
  return File(Dict({{"segments", List(segments)}, {"device_traces", List({List(events)})}}));
}

}  // namespace pickle
}  // namespace weir::trace
