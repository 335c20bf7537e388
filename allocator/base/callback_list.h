// CallbackList: functions of the program, in the order in which they were added.
//
// They are called without the list's lock: a call may still be under way on another thread when
// Remove returns.
#ifndef WEIR_BASE_CALLBACK_LIST_H_
#define WEIR_BASE_CALLBACK_LIST_H_

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "allocator/base/mutex.h"

namespace weir {

// Callback has an operator==.
template <typename Callback>
class CallbackList {
 public:
  using List = std::vector<Callback>;

  // May throw std::bad_alloc, and has done nothing then; so may Remove.
  void Add(const Callback& callback) {
    MutexLock lock(mu_);
    auto list = std::make_shared<List>(*list_);
    list->push_back(callback);
    Set(std::move(list));
  }
  // Takes one away. False if there is none like it.
  bool Remove(const Callback& callback) {
    MutexLock lock(mu_);
    auto list = std::make_shared<List>(*list_);
    const auto found = std::find(list->begin(), list->end(), callback);
    if (found == list->end()) return false;
    list->erase(found);
    Set(std::move(list));
    return true;
  }
  std::shared_ptr<const List> Get() {
    MutexLock lock(mu_);
    return list_;
  }
  // Takes no lock.
  bool is_empty() const { return is_empty_.load(std::memory_order_acquire); }

 private:
  void Set(std::shared_ptr<const List> list) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    list_ = std::move(list);
    is_empty_.store(list_->empty(), std::memory_order_release);
  }

  Mutex mu_;
  // Never changed, only replaced.
  std::shared_ptr<const List> list_ ABSL_GUARDED_BY(mu_) = std::make_shared<List>();
  std::atomic<bool> is_empty_{true};
};

}  // namespace weir

#endif  // WEIR_BASE_CALLBACK_LIST_H_
