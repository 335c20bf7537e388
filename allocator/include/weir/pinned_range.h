// SPDX-License-Identifier: MIT
//
// weir::PinnedRange: device memory whose physical pages stay where they are, for C++ programs.
//
//   const weir::PinnedRange pinned(buffer, bytes);  // before it is registered, exported, retained
//
// For its lifetime Weir neither moves nor gives back the memory, whether it is freed or not
// (weir_pin_range in weir/weir.h). Deregister before it ends. Failures are exceptions
// (weir/error.h).
#ifndef WEIR_PINNED_RANGE_H_
#define WEIR_PINNED_RANGE_H_

#include <cstddef>
#include <utility>

#include "weir/error.h"
#include "weir/weir.h"

namespace weir {

class [[nodiscard]] PinnedRange {
 public:
  PinnedRange(const void* ptr, std::size_t bytes) : ptr_(ptr), bytes_(bytes) {
    ThrowIfFailed(weir_pin_range(ptr, bytes));
  }
  // What was moved from pins nothing.
  PinnedRange(PinnedRange&& other) noexcept
      : ptr_(std::exchange(other.ptr_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  PinnedRange& operator=(PinnedRange&& other) noexcept {
    std::swap(ptr_, other.ptr_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  // Errors stay in weir_last_error(): inside an observer of remaps a range stays pinned.
  ~PinnedRange() {
    if (bytes_ != 0) weir_unpin_range(ptr_, bytes_);
  }

  const void* get() const noexcept { return ptr_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  const void* ptr_;
  std::size_t bytes_;
};

}  // namespace weir

#endif  // WEIR_PINNED_RANGE_H_
