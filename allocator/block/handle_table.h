// HandleTable: the records of all physical memory of a device. Guarded by the heap lock.
#ifndef WEIR_BLOCK_HANDLE_TABLE_H_
#define WEIR_BLOCK_HANDLE_TABLE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "allocator/block/block.h"

namespace weir {

class HandleTable {
 public:
  // Makes sure that the next `count` calls of New cannot fail. May throw std::bad_alloc.
  void Reserve(size_t count) {
    Grow(&owned_, owned_.size() + count);
    Grow(&all_, all_.size() + count);
    Grow(&unused_, unused_.size() + count + owned_.capacity());  // Delete must not fail either
    while (unused_.size() < count) unused_.push_back(std::make_unique<Handle>());
  }
  Handle* New(uint64_t bytes) {
    if (unused_.empty()) Reserve(1);
    *unused_.back() = Handle{};
    owned_.push_back(std::move(unused_.back()));
    unused_.pop_back();
    all_.push_back(owned_.back().get());
    Handle* handle = all_.back();
    handle->bytes = bytes;
    handle->index = static_cast<uint32_t>(all_.size() - 1);
    return handle;
  }
  void Delete(Handle* handle) {
    const uint32_t index = handle->index;
    std::swap(owned_[index], owned_.back());
    unused_.push_back(std::move(owned_.back()));
    owned_.pop_back();
    all_.pop_back();
    if (index < all_.size()) {
      all_[index] = owned_[index].get();
      all_[index]->index = index;
    }
  }
  const std::vector<Handle*>& all() const { return all_; }

 private:
  // Doubles, which reserve alone does not.
  template <typename T>
  static void Grow(std::vector<T>* vector, size_t size) {
    if (vector->capacity() < size) vector->reserve(std::max(size, 2 * vector->capacity()));
  }

  std::vector<std::unique_ptr<Handle>> owned_;
  std::vector<std::unique_ptr<Handle>> unused_;
  std::vector<Handle*> all_;  // the same records, in the same order
};

}  // namespace weir

#endif  // WEIR_BLOCK_HANDLE_TABLE_H_
