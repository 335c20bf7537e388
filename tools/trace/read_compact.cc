// The reader of the compact form: decompression, and the columns checked one after the other.
#include <zlib.h>

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/trace/compact_format.h"
#include "tools/trace/readers.h"
#include "tools/trace/trace_builder.h"

namespace weir::trace {
namespace {

uint64_t GetFixed(const unsigned char* from, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = bytes; i-- > 0;) value = value << 8 | from[i];
  return value;
}

// Memory follows what was really decompressed, up to the declared size, which is bounded.
absl::Status Decompress(Input& input, uint64_t declared, std::string* content) {
  z_stream stream = {};
  if (inflateInit(&stream) != Z_OK) return absl::ResourceExhaustedError("no memory");
  std::vector<char> piece(size_t{64} << 10);
  absl::Status status;
  int result = Z_OK;
  while (status.ok() && result != Z_STREAM_END) {
    const absl::StatusOr<std::string_view> packed = input.Peek(4096);
    if (!packed.ok()) {
      status = packed.status();
    } else if (packed->empty()) {
      status = input.ErrorHere("the compressed content ends too early (truncated file?)");
    }
    if (!status.ok()) break;
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed->data()));
    stream.avail_in = static_cast<uInt>(packed->size());
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    result = inflate(&stream, Z_NO_FLUSH);
    const size_t got = piece.size() - stream.avail_out;
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
      status = input.ErrorHere("the compressed content is damaged");
    } else if (content->size() + got > declared) {
      status = input.ErrorHere("the content is larger than its header says");
    } else {
      content->append(piece.data(), got);
      if (!input.Skip(packed->size() - stream.avail_in)) status = input.status();
    }
  }
  inflateEnd(&stream);
  if (status.ok() && content->size() != declared) {
    status = input.ErrorHere("the content is smaller than its header says");
  }
  return status;
}

// Reads the content; the first error stays. Positions are bytes of the content.
class ContentReader {
 public:
  ContentReader(const Input& input, std::string_view content) : input_(input), content_(content) {}

  absl::StatusOr<Trace> Read() {
    std::string name = Text();
    std::string source = Text();
    std::vector<std::string> notes(Number(kMaxCompactNotes));
    for (std::string& note : notes) note = Text();
    std::vector<TraceStream> streams(Number(kMaxStreams));
    for (TraceStream& stream : streams) {
      stream.device = static_cast<uint8_t>(Number(kMaxDevices - 1));
      stream.handle = Number(UINT64_MAX);
    }
    const uint64_t count = Number(kMaxEvents);
    // Every event takes a byte or more, so a false count asks for no memory.
    if (status_.ok() && count > content_.size() - at_) Fail("more events than bytes");
    if (!status_.ok()) return status_;
    std::vector<TraceEvent> events(static_cast<size_t>(count));
    for (TraceEvent& event : events) event.kind = static_cast<EventKind>(Number(2));
    for (TraceEvent& event : events) {
      event.stream = static_cast<uint16_t>(Number(kMaxStreams));
      if (status_.ok() && event.stream >= streams.size()) Fail("a stream that is not listed");
      if (!status_.ok()) return status_;
      event.device = streams[event.stream].device;
    }
    if (!ReadBlocks(&events)) return status_;
    for (TraceEvent& event : events) {
      if (event.kind == EventKind::kAlloc) event.bytes = Number(kMaxBlockBytes);
    }
    uint64_t time_us = 0;
    for (TraceEvent& event : events) {
      time_us += static_cast<uint64_t>(UnZigZag(Number(UINT64_MAX)));
      event.time_us = static_cast<int64_t>(time_us);
    }
    if (status_.ok() && at_ != content_.size()) Fail("bytes after the last event");
    if (!status_.ok()) return status_;
    Trace trace;
    trace.name = std::move(name);
    trace.source = std::move(source);
    trace.notes = std::move(notes);
    trace.streams = std::move(streams);
    trace.events = std::move(events);
    trace.blocks = blocks_;
    return trace;
  }

 private:
  bool Fail(std::string_view text) {
    if (status_.ok()) status_ = input_.ErrorAt("byte of the content", at_, text);
    return false;
  }

  uint64_t Number(uint64_t most) {
    uint64_t value = 0;
    for (int shift = 0; status_.ok(); shift += 7) {
      if (at_ == content_.size()) {
        Fail("the content ends too early");
        break;
      }
      const auto byte = static_cast<unsigned char>(content_[at_]);
      if (shift == 63 && byte > 1) {
        Fail("a number is longer than 64 bits");
        break;
      }
      ++at_;
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) {
        if (value <= most) return value;
        Fail(absl::StrCat(value, " is more than ", most));
      }
    }
    return 0;
  }

  std::string Text() {
    const uint64_t bytes = Number(kMaxTextBytes);
    if (!status_.ok()) return "";
    if (bytes > content_.size() - at_) {
      Fail("the content ends too early");
      return "";
    }
    std::string text(content_.substr(at_, static_cast<size_t>(bytes)));
    at_ += static_cast<size_t>(bytes);
    MakePrintable(&text);
    return text;
  }

  // Frees and uses say how many allocations ago their block began.
  bool ReadBlocks(std::vector<TraceEvent>* events) {
    std::vector<bool> live;
    std::vector<uint8_t> device;
    for (TraceEvent& event : *events) {
      if (event.kind == EventKind::kAlloc) {
        event.block = static_cast<uint32_t>(live.size());
        live.push_back(true);
        device.push_back(event.device);
        continue;
      }
      const uint64_t back = Number(kMaxEvents);
      if (!status_.ok()) return false;
      if (back >= live.size()) return Fail("a block that was never allocated");
      event.block = static_cast<uint32_t>(live.size() - 1 - back);
      if (!live[event.block]) return Fail("a block that was freed before");
      if (device[event.block] != event.device) return Fail("a stream of another device");
      if (event.kind == EventKind::kFree) live[event.block] = false;
    }
    blocks_ = live.size();
    return status_.ok();
  }

  const Input& input_;
  std::string_view content_;
  size_t at_ = 0;
  uint64_t blocks_ = 0;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<Trace> ReadCompact(Input& input) {
  unsigned char header[kCompactHeaderBytes];
  if (!input.Read(header, sizeof(header))) return input.status();
  if (header[8] != kCompactVersion) {
    return input.ErrorHere(absl::StrCat("version ", header[8],
                                        " of the compact form; this program reads version ",
                                        kCompactVersion));
  }
  const uint64_t declared = GetFixed(header + 9, 8);
  const uint64_t checksum = GetFixed(header + 17, 4);
  if (declared > kMaxCompactContentBytes) {
    return input.ErrorHere(absl::StrCat("the header declares ", declared, " bytes of content; ",
                                        kMaxCompactContentBytes, " are allowed"));
  }
  std::string content;
  if (absl::Status s = Decompress(input, declared, &content); !s.ok()) return s;
  if (crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size()) != checksum) {
    return input.ErrorHere("the checksum is wrong (damaged file)");
  }
  return ContentReader(input, content).Read();
}

}  // namespace weir::trace
