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

#include "allocator/base/callback_list.h"

namespace weir {

using MemoryCallbackFunction = size_t (*)(int device, size_t bytes_needed, void* user);

struct MemoryCallback {
  MemoryCallbackFunction function;
  void* user;
  friend bool operator==(const MemoryCallback&, const MemoryCallback&) = default;
};

class MemoryCallbacks {
 public:
  using List = CallbackList<MemoryCallback>::List;

  static MemoryCallbacks& Get();

  void Add(const MemoryCallback& callback) { callbacks_.Add(callback); }
  // False if it was not added.
  bool Remove(const MemoryCallback& callback) { return callbacks_.Remove(callback); }
  // Those to be asked by the calling thread: none inside a callback.
  std::shared_ptr<const List> ForThisThread();
  // What the callback says it has freed.
  static uint64_t Call(const MemoryCallback& callback, int device, uint64_t bytes_needed);

 private:
  CallbackList<MemoryCallback> callbacks_;
};

}  // namespace weir

#endif  // WEIR_POOL_MEMORY_CALLBACKS_H_
