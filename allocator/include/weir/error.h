// SPDX-License-Identifier: MIT
//
// Failures of Weir's C++ API: OutOfMemory (a std::bad_alloc) when the bytes are not there, Error
// for all else. Both carry the text of weir_last_error().
#ifndef WEIR_ERROR_H_
#define WEIR_ERROR_H_

#include <new>
#include <stdexcept>
#include <string>

#include "weir/weir.h"

namespace weir {

class Error : public std::runtime_error {
 public:
  Error(weir_status_t status, const std::string& text)
      : std::runtime_error(text), status_(status) {}
  weir_status_t status() const noexcept { return status_; }

 private:
  weir_status_t status_;
};

class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(const std::string& text) : text_(text) {}
  const char* what() const noexcept override { return text_.what(); }

 private:
  std::runtime_error text_;  // a string whose copies cannot fail
};

// Throws the calling thread's last failure of the C API.
[[noreturn]] inline void ThrowLastError() {
  const weir_status_t status = weir_last_status();
  if (status == WEIR_ERROR_OUT_OF_MEMORY) throw OutOfMemory(weir_last_error());
  throw Error(status, weir_last_error());
}

// Throws unless a function of the C API has answered WEIR_OK.
inline void ThrowIfFailed(int status) {
  if (status != WEIR_OK) ThrowLastError();
}

}  // namespace weir

#endif  // WEIR_ERROR_H_
