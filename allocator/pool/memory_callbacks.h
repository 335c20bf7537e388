// MemoryCallbacks: functions of the program that are asked to free memory before a request fails.
//
// One list for the process. Callbacks run without any lock of Weir, on the thread whose request
// does not fit, perhaps on several threads at once. They do not nest: while one runs, requests of
// its thread fail without asking.
#ifndef WEIR_POOL_MEMORY_CALLBACKS_H_
#define WEIR_POOL_MEMORY_CALLBACKS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "allocator/base/mutex.h"

namespace weir {

using MemoryCallbackFunction = size_t (*)(int device, size_t bytes_needed, void* user);

struct MemoryCallback {
  MemoryCallbackFunction function;
  void* user;
  friend bool operator==(const MemoryCallback&, const MemoryCallback&) = default;
};

class MemoryCallbacks {
 public:
  using List = std::vector<MemoryCallback>;  // in the order in which they were added

  static MemoryCallbacks& Get();

  void Add(const MemoryCallback& callback);
  // False if it was not added. A call may still be under way on another thread afterwards.
  bool Remove(const MemoryCallback& callback);
  // Those to be asked by the calling thread: none inside a callback.
  std::shared_ptr<const List> ForThisThread();
  // What the callback says it has freed.
  static uint64_t Call(const MemoryCallback& callback, int device, uint64_t bytes_needed);

 private:
  Mutex mu_;
  // Never changed, only replaced: callbacks run without the lock.
  std::shared_ptr<const List> list_ ABSL_GUARDED_BY(mu_) = std::make_shared<List>();
};

}  // namespace weir

#endif  // WEIR_POOL_MEMORY_CALLBACKS_H_
