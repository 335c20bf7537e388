// weir::Mutex: std::mutex with Abseil's thread annotations, checked by clang's -Wthread-safety.
//
// Not absl::Mutex: distributions ship it without ThreadSanitizer instrumentation, and an
// uncontended std::mutex is cheaper.
#ifndef WEIR_BASE_MUTEX_H_
#define WEIR_BASE_MUTEX_H_

#include <mutex>

#include "absl/base/thread_annotations.h"

namespace weir {

class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mu_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mu_.unlock(); }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) { return mu_.try_lock(); }
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}

 private:
  std::mutex mu_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mu) ABSL_EXCLUSIVE_LOCK_FUNCTION(mu) : mu_(mu) { mu_.Lock(); }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mu_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mu_;
};

// Holds the mutex for a scope if it is free now.
class MutexTryLock {
 public:
  explicit MutexTryLock(Mutex& mu) ABSL_NO_THREAD_SAFETY_ANALYSIS : mu_(mu), held_(mu.TryLock()) {}
  ~MutexTryLock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (held_) mu_.Unlock();
  }
  MutexTryLock(const MutexTryLock&) = delete;
  MutexTryLock& operator=(const MutexTryLock&) = delete;
  bool held() const { return held_; }

 private:
  Mutex& mu_;
  const bool held_;
};

}  // namespace weir

#endif  // WEIR_BASE_MUTEX_H_
