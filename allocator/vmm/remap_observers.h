// RemapObservers: functions of the program that are told when Weir takes physical memory away from
// an address and when there is some at an address (weir_observe_remap).
//
// One list for the process. They are called without the heap lock and under the device's space
// lock, so an observer must not do what needs that lock; `inside` is how such calls are refused.
#ifndef WEIR_VMM_REMAP_OBSERVERS_H_
#define WEIR_VMM_REMAP_OBSERVERS_H_

#include <cstdint>

#include "allocator/base/callback_list.h"
#include "weir/weir.h"

namespace weir {

struct RemapObserver {
  weir_remap_observer_t function;
  void* user;
  friend bool operator==(const RemapObserver&, const RemapObserver&) = default;
};

class RemapObservers {
 public:
  static RemapObservers& Get();

  using List = CallbackList<RemapObserver>;

  // An observer lets go of memory that is unmapped; a watcher only listens.
  List& observers() { return observers_; }
  List& watchers() { return watchers_; }

  // Tells all of them, in the order in which they were added.
  void Tell(int device, uint64_t at, uint64_t bytes, weir_remap_event_t event);
  // Whether the calling thread is inside an observer.
  static bool inside();

 private:
  List observers_;
  List watchers_;
};

}  // namespace weir

#endif  // WEIR_VMM_REMAP_OBSERVERS_H_
