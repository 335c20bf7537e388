// ThreadCaches: which caches the calling thread has; and the records of those that no thread has.
#ifndef WEIR_POOL_THREAD_CACHES_H_
#define WEIR_POOL_THREAD_CACHES_H_

#include <cstdint>
#include <vector>

#include "allocator/pool/thread_cache.h"

namespace weir {

// A number for the calling thread, never 0 and never used again.
uint64_t ThreadNumber();

// Stops the threads that are using these caches, for a scope under the heap lock.
class CacheVisit {
 public:
  explicit CacheVisit(const std::vector<ThreadCache*>& caches);
  ~CacheVisit();
  CacheVisit(const CacheVisit&) = delete;
  CacheVisit& operator=(const CacheVisit&) = delete;

 private:
  const std::vector<ThreadCache*>& caches_;
  const uint64_t self_;
};

class ThreadCaches {
 public:
  // The cache that the thread used last; may be null, or of any heap and stream.
  static ThreadCache* last() { return last_; }
  // The thread's cache for a heap's stream, or null. It becomes the last.
  static ThreadCache* Find(const DeviceHeap* heap, Stream stream);
  // The same, made if there is none. Null if the host has no memory for it or the thread is ending.
  static ThreadCache* FindOrMake(const DeviceHeap* heap, Stream stream);
  // In the child of a fork, whose heaps nobody may use any more.
  static void ForgetLast() { last_ = nullptr; }

 private:
  struct Own;  // the thread's caches by heap and stream
  static Own& own();

  // In a variable of its own, because reading it must not construct anything.
  static constinit thread_local ThreadCache* last_ __attribute__((tls_model("initial-exec")));
};

}  // namespace weir

#endif  // WEIR_POOL_THREAD_CACHES_H_
