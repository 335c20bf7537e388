#include "allocator/pool/memory_callbacks.h"

#include <algorithm>

namespace weir {
namespace {

constinit thread_local bool in_callback = false;

}  // namespace

MemoryCallbacks& MemoryCallbacks::Get() {
  static MemoryCallbacks* const callbacks = new MemoryCallbacks();
  return *callbacks;
}

void MemoryCallbacks::Add(const MemoryCallback& callback) {
  MutexLock lock(mu_);
  auto list = std::make_shared<List>(*list_);
  list->push_back(callback);
  list_ = std::move(list);
}

bool MemoryCallbacks::Remove(const MemoryCallback& callback) {
  MutexLock lock(mu_);
  auto list = std::make_shared<List>(*list_);
  const auto found = std::find(list->begin(), list->end(), callback);
  if (found == list->end()) return false;
  list->erase(found);
  list_ = std::move(list);
  return true;
}

std::shared_ptr<const MemoryCallbacks::List> MemoryCallbacks::ForThisThread() {
  static const auto* const none = new std::shared_ptr<const List>(std::make_shared<List>());
  if (in_callback) return *none;
  MutexLock lock(mu_);
  return list_;
}

uint64_t MemoryCallbacks::Call(const MemoryCallback& callback, int device, uint64_t bytes_needed) {
  in_callback = true;
  const uint64_t freed = callback.function(device, bytes_needed, callback.user);
  in_callback = false;
  return freed;
}

}  // namespace weir
