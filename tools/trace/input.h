// Input: the bytes of a file, decompressed on the way when it is gzip (told by its first bytes, not
// by its name), read in order, in pieces of fixed size. Nothing of a file's size is ever held, and
// no more than kMaxInputBytes are delivered, so neither a huge file nor a gzip bomb costs memory.
// Not thread-safe.
#ifndef WEIR_TOOLS_TRACE_INPUT_H_
#define WEIR_TOOLS_TRACE_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir::trace {

// Text of a file that will be shown on a terminal: control characters become question marks.
void MakePrintable(std::string* text);

class Input {
 public:
  static absl::StatusOr<std::unique_ptr<Input>> Open(const std::string& path);
  ~Input();
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  // The next bytes without taking them: `most` of them, fewer only at the end.
  absl::StatusOr<std::string_view> Peek(size_t most);

  // The next byte, or -1 at the end and on an error (see status()).
  int ReadByte() {
    if (next_ == end_ && !Refill()) return -1;
    return static_cast<unsigned char>(buffer_[next_++]);
  }
  // All of `bytes`, or false with status() set (a file that ends inside is an error).
  bool Read(void* to, size_t bytes);
  bool Skip(uint64_t bytes);

  // The next line without its line end; false at the end and on an error (status() tells which).
  // A line of more than kMaxTextBytes is an error.
  bool ReadLine(std::string* line);

  // Bytes taken so far, after decompression, and lines read by ReadLine.
  uint64_t position() const { return delivered_ - (end_ - next_); }
  uint64_t line() const { return line_; }
  const std::string& path() const { return path_; }
  const absl::Status& status() const { return status_; }

  // Errors in one form: "FILE: byte N: TEXT", "FILE: line N: TEXT" or "FILE: event N: TEXT".
  absl::Status ErrorHere(std::string_view text) const;
  absl::Status ErrorInLine(std::string_view text) const;
  absl::Status ErrorAt(std::string_view unit, uint64_t number, std::string_view text) const;

 private:
  explicit Input(std::string path);
  bool Refill();
  bool Fail(std::string_view text);

  struct Source;  // the file and the decompressor
  std::unique_ptr<Source> source_;
  std::string path_;
  std::vector<char> buffer_;
  size_t next_ = 0;
  size_t end_ = 0;
  uint64_t delivered_ = 0;
  uint64_t line_ = 0;
  absl::Status status_;
};

}  // namespace weir::trace

#endif  // WEIR_TOOLS_TRACE_INPUT_H_
