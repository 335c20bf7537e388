// Driver handles: opaque values that name live objects. A value is given out again after its object
// is gone, last freed first, as drivers do; the values are no addresses that anybody could read.
// Not thread-safe: protected by the simulator lock.
#ifndef WEIR_TOOLS_SIMCUDA_HANDLE_TABLE_H_
#define WEIR_TOOLS_SIMCUDA_HANDLE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace weir::sim {

// `tag` tells kinds of handles apart, so that an event passed as a stream is an invalid handle.
template <typename T, typename Handle, uint64_t tag>
class HandleTable {
 public:
  Handle Add(std::shared_ptr<T> object) {
    size_t index;
    if (free_.empty()) {
      index = slots_.size();
      slots_.push_back(std::move(object));
    } else {
      index = free_.back();
      free_.pop_back();
      slots_[index] = std::move(object);
    }
    return reinterpret_cast<Handle>((tag << kTagShift) | ((index + 1) << kIndexShift));
  }
  // Null when the handle names nothing that lives.
  const std::shared_ptr<T>& Find(Handle handle) const {
    const size_t index = Index(handle);
    return index < slots_.size() ? slots_[index] : none_;
  }
  std::shared_ptr<T> Remove(Handle handle) {
    const size_t index = Index(handle);
    if (index >= slots_.size() || slots_[index] == nullptr) return nullptr;
    free_.push_back(index);
    return std::exchange(slots_[index], nullptr);
  }
  template <typename Predicate>
  void RemoveIf(Predicate predicate) {
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i] == nullptr || !predicate(*slots_[i])) continue;
      slots_[i] = nullptr;
      free_.push_back(i);
    }
  }

 private:
  static constexpr unsigned kTagShift = 48;
  static constexpr unsigned kIndexShift = 4;

  static size_t Index(Handle handle) {
    const uint64_t value = reinterpret_cast<uint64_t>(handle);
    if (value >> kTagShift != tag) return SIZE_MAX;
    return ((value & ((uint64_t{1} << kTagShift) - 1)) >> kIndexShift) - 1;
  }

  std::vector<std::shared_ptr<T>> slots_;
  std::vector<size_t> free_;
  const std::shared_ptr<T> none_;
};

}  // namespace weir::sim

#endif  // WEIR_TOOLS_SIMCUDA_HANDLE_TABLE_H_
