// Files for the tests of the readers: temporary ones, gzip, and pickles written opcode by opcode.
#ifndef WEIR_TESTS_TRACE_TRACE_FILES_H_
#define WEIR_TESTS_TRACE_TRACE_FILES_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tools/trace/trace_io.h"

namespace weir::trace {

// A file that goes away with the object.
class TempFile {
 public:
  explicit TempFile(const std::string& content, const std::string& ending = ".txt");
  ~TempFile();
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string Gzip(const std::string& content);
std::string ReadWhole(const std::string& path);

// The message of the error, "" if there is none, with the file's name as FILE.
std::string ErrorOf(const std::string& content);
// Reads content that must be right; the test fails with the error otherwise.
Trace ReadContent(const std::string& content);
// "a0:100@0" (allocation of block 0 on stream index 0), "f0@0", "u0@1", joined by spaces.
std::string EventText(const Trace& trace);

namespace pickle {

std::string Text(const std::string& text);
std::string Number(int64_t value);
std::string List(const std::vector<std::string>& items);
std::string Dict(const std::vector<std::pair<std::string, std::string>>& entries);
// With the protocol's mark in front and the stop behind.
std::string File(const std::string& root);

std::string Event(const std::string& action, int64_t address, int64_t size, int64_t stream = 0,
                  int64_t time_us = 1000);
// A snapshot of one device with the events, and with the segments if given.
std::string Snapshot(const std::vector<std::string>& events,
                     const std::vector<std::string>& segments = {});

}  // namespace pickle
}  // namespace weir::trace

#endif  // WEIR_TESTS_TRACE_TRACE_FILES_H_
