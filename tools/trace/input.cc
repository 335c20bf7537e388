#include "tools/trace/input.h"

#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/trace/trace.h"

namespace weir::trace {
namespace {

constexpr size_t kPieceBytes = size_t{256} << 10;

}  // namespace

struct Input::Source {
  ~Source() {
    if (gzip) inflateEnd(&stream);
    if (file != nullptr) std::fclose(file);
  }

  FILE* file = nullptr;
  bool gzip = false;
  bool member_open = false;  // inside a gzip member: the file may not end here
  z_stream stream = {};
  std::vector<unsigned char> packed = std::vector<unsigned char>(kPieceBytes);
};

void MakePrintable(std::string* text) {
  for (char& c : *text) {
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = '?';
  }
}

Input::Input(std::string path)
    : source_(std::make_unique<Source>()), path_(std::move(path)), buffer_(kPieceBytes) {}

Input::~Input() = default;

absl::StatusOr<std::unique_ptr<Input>> Input::Open(const std::string& path) {
  std::unique_ptr<Input> input(new Input(path));
  Source& source = *input->source_;
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) {
    return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  }
  if (S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is a folder, not a trace"));
  }
  source.file = std::fopen(path.c_str(), "rb");
  if (source.file == nullptr) {
    return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  }
  const size_t got = std::fread(source.packed.data(), 1, kPieceBytes, source.file);
  source.stream.next_in = source.packed.data();
  source.stream.avail_in = static_cast<uInt>(got);
  if (got >= 2 && source.packed[0] == 0x1f && source.packed[1] == 0x8b) {
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    if (inflateInit2(&source.stream, kGzipOnly) != Z_OK) {
      return absl::ResourceExhaustedError(absl::StrCat(path, ": no memory to decompress"));
    }
    source.gzip = true;
    source.member_open = true;
  }
  return input;
}

bool Input::Fail(std::string_view text) {
  if (status_.ok()) status_ = ErrorHere(text);
  return false;
}

bool Input::Refill() {
  if (!status_.ok()) return false;
  // Keep what Peek left unread at the front.
  std::memmove(buffer_.data(), buffer_.data() + next_, end_ - next_);
  end_ -= next_;
  next_ = 0;
  Source& source = *source_;
  const size_t before = end_;
  while (end_ == before) {
    if (source.stream.avail_in == 0) {
      const size_t got = std::fread(source.packed.data(), 1, kPieceBytes, source.file);
      if (std::ferror(source.file) != 0) return Fail("cannot be read");
      if (got == 0) {
        return source.member_open ? Fail("the gzip data ends too early (truncated file?)") : false;
      }
      source.stream.next_in = source.packed.data();
      source.stream.avail_in = static_cast<uInt>(got);
    }
    const size_t room = buffer_.size() - end_;
    if (!source.gzip) {
      const size_t take = std::min<size_t>(room, source.stream.avail_in);
      std::memcpy(buffer_.data() + end_, source.stream.next_in, take);
      source.stream.next_in += take;
      source.stream.avail_in -= static_cast<uInt>(take);
      end_ += take;
      continue;
    }
    if (!source.member_open) {
      // Gzip files may be several members in a row; anything else behind one is padding.
      if (source.stream.next_in[0] != 0x1f) return false;
      inflateReset(&source.stream);
      source.member_open = true;
    }
    source.stream.next_out = reinterpret_cast<Bytef*>(buffer_.data() + end_);
    source.stream.avail_out = static_cast<uInt>(room);
    const int result = inflate(&source.stream, Z_NO_FLUSH);
    end_ = buffer_.size() - source.stream.avail_out;
    if (result == Z_STREAM_END) {
      source.member_open = false;
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      delivered_ += end_ - before;
      return Fail("the gzip data is damaged");
    }
  }
  delivered_ += end_ - before;
  if (delivered_ > kMaxInputBytes) {
    return Fail(absl::StrCat("larger than ", kMaxInputBytes, " bytes after decompression"));
  }
  return true;
}

absl::StatusOr<std::string_view> Input::Peek(size_t most) {
  most = std::min(most, buffer_.size() / 2);
  while (end_ - next_ < most && Refill()) {
  }
  if (!status_.ok()) return status_;
  return std::string_view(buffer_.data() + next_, std::min(most, end_ - next_));
}

bool Input::Read(void* to, size_t bytes) {
  char* out = static_cast<char*>(to);
  while (bytes > 0) {
    if (next_ == end_ && !Refill()) return Fail("the file ends too early (truncated?)");
    const size_t take = std::min(bytes, end_ - next_);
    std::memcpy(out, buffer_.data() + next_, take);
    next_ += take;
    out += take;
    bytes -= take;
  }
  return true;
}

bool Input::Skip(uint64_t bytes) {
  while (bytes > 0) {
    if (next_ == end_ && !Refill()) return Fail("the file ends too early (truncated?)");
    const size_t take = static_cast<size_t>(std::min<uint64_t>(bytes, end_ - next_));
    next_ += take;
    bytes -= take;
  }
  return true;
}

bool Input::ReadLine(std::string* line) {
  line->clear();
  bool any = false;
  while (true) {
    if (next_ == end_ && !Refill()) break;
    any = true;
    const char* from = buffer_.data() + next_;
    const void* newline = std::memchr(from, '\n', end_ - next_);
    const size_t length = newline != nullptr
                              ? static_cast<size_t>(static_cast<const char*>(newline) - from)
                              : end_ - next_;
    if (line->size() + length > kMaxTextBytes) {
      status_ = ErrorAt("line", line_ + 1, absl::StrCat("longer than ", kMaxTextBytes, " bytes"));
      return false;
    }
    line->append(from, length);
    next_ += length;
    if (newline == nullptr) continue;
    ++next_;
    break;
  }
  if (!status_.ok() || !any) return false;
  ++line_;
  if (!line->empty() && line->back() == '\r') line->pop_back();
  return true;
}

absl::Status Input::ErrorAt(std::string_view unit, uint64_t number, std::string_view text) const {
  std::string message = absl::StrCat(path_, ": ", absl::string_view(unit.data(), unit.size()), " ",
                                     number, ": ", absl::string_view(text.data(), text.size()));
  MakePrintable(&message);
  return absl::InvalidArgumentError(message);
}
absl::Status Input::ErrorHere(std::string_view text) const {
  return ErrorAt("byte", position(), text);
}
absl::Status Input::ErrorInLine(std::string_view text) const {
  return ErrorAt("line", line_, text);
}

}  // namespace weir::trace
