// Relaxed<T>: a value that threads may read and write at the same time, with no order between them
// and other memory. Costs what a plain T costs. Copying copies the value.
#ifndef WEIR_BASE_RELAXED_H_
#define WEIR_BASE_RELAXED_H_

#include <atomic>

namespace weir {

template <typename T>
class Relaxed {
 public:
  constexpr Relaxed() : value_{} {}
  constexpr Relaxed(T value) : value_(value) {}  // NOLINT: stands for a T
  Relaxed(const Relaxed& other) : value_(other.load()) {}
  Relaxed& operator=(const Relaxed& other) {
    store(other.load());
    return *this;
  }

  T load() const { return value_.load(std::memory_order_relaxed); }
  void store(T value) { value_.store(value, std::memory_order_relaxed); }

 private:
  std::atomic<T> value_;
};

}  // namespace weir

#endif  // WEIR_BASE_RELAXED_H_
