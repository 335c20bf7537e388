#include "allocator/base/owner_lock.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace weir {
namespace {

bool Membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0) == 0; }

}  // namespace

bool OwnerLock::Register() {
#if defined(__SANITIZE_THREAD__)
  return false;
#else
  return Membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
#endif
}

std::atomic<bool> OwnerLock::kernel_fences_{OwnerLock::Register()};

void OwnerLock::Fence() {
  if (!kernel_fences_.load(std::memory_order_relaxed)) return;
  // A child after fork may have to register again.
  if (Membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) return;
  if (Register() && Membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) return;
  // A sandbox set up since then forbids the call. From now on owners bring their own fences; those
  // that entered without one are visible when their stores have left the processors' buffers,
  // which is a matter of microseconds.
  kernel_fences_.store(false, std::memory_order_seq_cst);
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void OwnerLock::AwaitOwner() const {
  // The owner is busy for some nanoseconds, unless the system has put it to sleep in between.
  // Sequentially consistent, as the owner's steps are where it brings its own fence.
  for (int i = 0; busy_.load(std::memory_order_seq_cst); ++i) {
    if (i >= 100) sched_yield();
  }
}

}  // namespace weir
