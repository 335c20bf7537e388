// SPDX-License-Identifier: MIT
//
// weir::CapturePool: memory for CUDA graphs, for C++ programs.
//
//   weir::CapturePool pool;
//   {
//     const weir::CapturePool::Scope routed(pool);
//     cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
//     ... allocate, launch, free ...
//     cudaStreamEndCapture(stream, &graph);
//   }
//   ... launch the graph as often as you like, then destroy it, then the pool ...
//
// A CapturePool is one user of a pool of weir/weir.h, which says what the pool serves and when its
// memory is reused: a copy is one more user, and the pool ends with the last one. Failures are
// exceptions (weir/error.h).
#ifndef WEIR_CAPTURE_POOL_H_
#define WEIR_CAPTURE_POOL_H_

#include <cstddef>
#include <utility>

#include "weir/error.h"
#include "weir/weir.h"

namespace weir {

class CapturePool {
 public:
  class Scope;

  // A new pool of a device.
  explicit CapturePool(int device = 0) { ThrowIfFailed(weir_pool_create(device, &pool_)); }
  // One more user of the pool.
  CapturePool(const CapturePool& other) : pool_(other.pool_) {
    if (pool_ != 0) ThrowIfFailed(weir_pool_retain(pool_));
  }
  // The pool that was moved from is nobody's, and may only be assigned to or destroyed.
  CapturePool(CapturePool&& other) noexcept : pool_(std::exchange(other.pool_, 0)) {}
  CapturePool& operator=(CapturePool other) noexcept {
    std::swap(pool_, other.pool_);
    return *this;
  }
  // Its graphs must not be launched any more if this is the last user. Errors stay in
  // weir_last_error(): a pool to which requests are still routed is not released.
  ~CapturePool() {
    if (pool_ != 0) weir_pool_release(pool_);
  }

  // For the functions of weir/weir.h. Never 0 unless it was moved from.
  weir_pool_t get() const noexcept { return pool_; }

  // Most physical memory that the pool may have; SIZE_MAX: no limit.
  void SetLimit(std::size_t bytes) { ThrowIfFailed(weir_pool_set_limit(pool_, bytes)); }

  // Of the same pool.
  friend bool operator==(const CapturePool& a, const CapturePool& b) noexcept {
    return a.pool_ == b.pool_;
  }
  friend bool operator!=(const CapturePool& a, const CapturePool& b) noexcept { return !(a == b); }

 private:
  weir_pool_t pool_ = 0;
};

// For its lifetime requests are routed to the pool, of which it is a user too. Scopes nest: the
// newest wins.
class [[nodiscard]] CapturePool::Scope {
 public:
  // Requests of the calling thread on the pool's device; ends in the same thread.
  explicit Scope(CapturePool pool) : pool_(std::move(pool)) {
    ThrowIfFailed(weir_pool_begin(pool_.get()));
  }
  // Requests of all threads for streams for which filter(stream, user) is not 0.
  Scope(CapturePool pool, weir_pool_filter_t filter, void* user) : pool_(std::move(pool)) {
    ThrowIfFailed(weir_pool_begin_filter(pool_.get(), filter, user));
  }
  // Errors stay in weir_last_error().
  ~Scope() { weir_pool_end(pool_.get()); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  const CapturePool pool_;
};

}  // namespace weir

#endif  // WEIR_CAPTURE_POOL_H_
