// OwnerLock: a lock that is almost free for the one thread that owns it, and slow for visitors.
//
// The owner says that it is busy and looks whether a visitor has asked it to stop; a visitor asks,
// makes sure that the owner's processor has seen it, and waits until the owner is not busy. The
// owner's two steps must not be reordered; instead of a fence in each of its calls, the visitor has
// the kernel put one into every running thread of the process (membarrier(2)). Where the kernel
// refuses, and under ThreadSanitizer, which cannot see such a fence, the owner pays for its own.
//
// Visitors exclude each other by a lock of their own (the heap lock). An owner that was stopped
// takes that lock too and may then do as it likes without entering, since no visitor can be there.
#ifndef WEIR_BASE_OWNER_LOCK_H_
#define WEIR_BASE_OWNER_LOCK_H_

#include <atomic>

namespace weir {

class OwnerLock {
 public:
  // The owner. Neither blocks. After a failure to enter: take the visitors' lock.
  bool TryEnter() {
    bool stopped;
    if (kernel_fences_.load(std::memory_order_relaxed)) {
      busy_.store(true, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);
      stopped = stop_.load(std::memory_order_acquire);
    } else {
      busy_.store(true, std::memory_order_seq_cst);
      stopped = stop_.load(std::memory_order_seq_cst);
    }
    if (stopped) [[unlikely]]
      Exit();
    return !stopped;
  }
  void Exit() { busy_.store(false, std::memory_order_release); }

  // A visitor: Stop each lock, one Fence for all, AwaitOwner each; then Resume each.
  void Stop() { stop_.store(true, std::memory_order_seq_cst); }
  static void Fence();
  void AwaitOwner() const;
  void Resume() { stop_.store(false, std::memory_order_release); }

 private:
  static bool Register();
  // Decided when the library is loaded. Goes to false if the kernel should refuse later.
  static std::atomic<bool> kernel_fences_;

  std::atomic<bool> busy_{false};
  std::atomic<bool> stop_{false};
};

}  // namespace weir

#endif  // WEIR_BASE_OWNER_LOCK_H_
