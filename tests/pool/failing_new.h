// operator new that fails on request, for the program that includes this: in one source file only.
//
// Only allocations of the test's own code may fail: the simulated device and the standard library
// live in the same process and are no subject here.
#ifndef WEIR_TESTS_POOL_FAILING_NEW_H_
#define WEIR_TESTS_POOL_FAILING_NEW_H_

#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

namespace {

thread_local long fail_after = -1;  // allocations that still succeed; -1: all of them

// A thread that has one stops in its next allocation until told to go on, or for 5 s.
struct Gate {
  std::atomic<bool> reached{false};
  std::atomic<bool> open{false};
};
thread_local Gate* gate = nullptr;

void PassGate() {
  Gate* const mine = gate;
  gate = nullptr;
  mine->reached = true;
  for (int i = 0; i < 5000 && !mine->open; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

bool IsSpared(void* caller) {
  Dl_info info;
  return dladdr(caller, &info) != 0 && info.dli_fname != nullptr &&
         (std::strstr(info.dli_fname, "simcuda") != nullptr ||
          std::strstr(info.dli_fname, "libstdc++") != nullptr);
}

}  // namespace

// Not inline, or GCC sees through them and warns of malloc and delete in one function.
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (gate != nullptr) PassGate();
  if (fail_after >= 0 && !IsSpared(__builtin_return_address(0)) && fail_after-- == 0) {
    fail_after = 0;
    throw std::bad_alloc();
  }
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return std::malloc(bytes); }
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }

#endif  // WEIR_TESTS_POOL_FAILING_NEW_H_
