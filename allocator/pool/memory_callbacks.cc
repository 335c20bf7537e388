#include "allocator/pool/memory_callbacks.h"

namespace weir {
namespace {

constinit thread_local bool in_callback = false;

}  // namespace

MemoryCallbacks& MemoryCallbacks::Get() {
  static MemoryCallbacks* const callbacks = new MemoryCallbacks();
  return *callbacks;
}

std::shared_ptr<const MemoryCallbacks::List> MemoryCallbacks::ForThisThread() {
  static const auto* const none = new std::shared_ptr<const List>(std::make_shared<List>());
  return in_callback ? *none : callbacks_.Get();
}

uint64_t MemoryCallbacks::Call(const MemoryCallback& callback, int device, uint64_t bytes_needed) {
  in_callback = true;
  const uint64_t freed = callback.function(device, bytes_needed, callback.user);
  in_callback = false;
  return freed;
}

}  // namespace weir
