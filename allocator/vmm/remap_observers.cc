#include "allocator/vmm/remap_observers.h"

namespace weir {
namespace {

constinit thread_local bool in_observer = false;

}  // namespace

RemapObservers& RemapObservers::Get() {
  static RemapObservers* const observers = new RemapObservers();
  return *observers;
}

void RemapObservers::Tell(int device, uint64_t at, uint64_t bytes, weir_remap_event_t event) {
  for (auto* callbacks : {&observers_, &watchers_}) {
    if (callbacks->is_empty()) continue;
    const auto list = callbacks->Get();
    in_observer = true;
    for (const RemapObserver& each : *list) {
      each.function(device, reinterpret_cast<void*>(at), bytes, event, each.user);
    }
    in_observer = false;
  }
}

bool RemapObservers::inside() { return in_observer; }

}  // namespace weir
