// An arena over addresses that nobody else uses, mapped on request as a miss would, without a
// driver.
#ifndef WEIR_TESTS_SUPPORT_ARENA_FIXTURE_H_
#define WEIR_TESTS_SUPPORT_ARENA_FIXTURE_H_

#include <memory>
#include <vector>

#include "allocator/block/arena.h"
#include "tests/support/catch.h"

namespace weir::test {

class ArenaFixture {
 public:
  explicit ArenaFixture(uint64_t granules) : begin_(NextRange()) {
    REQUIRE(PointerIndex::Get().Cover(begin_, granules * PointerIndex::kGranule));
    arena_.AddHoles(begin_, granules * PointerIndex::kGranule);
  }
  ~ArenaFixture() { PointerIndex::Get().SetHandle(nullptr, begin_, kGiB); }

  // What a miss does, without a driver.
  void Map(uint64_t granule, uint64_t count) {
    handles_.push_back(std::make_unique<Handle>());
    Handle* handle = handles_.back().get();
    handle->id = handles_.size();
    handle->at = begin_ + granule * PointerIndex::kGranule;
    handle->bytes = count * PointerIndex::kGranule;
    handle->arena = &arena_;
    Block* busy = arena_.CarveBusy(FreeRunOf(handle->at), handle->at, handle->at + handle->bytes);
    PointerIndex::Get().SetHandle(handle, handle->at, handle->bytes);
    arena_.Settle(busy, handle->at);
  }
  void Unmap(Handle* handle) {
    std::vector<Block*> busy;
    arena_.CarveHandles({handle}, &busy);
    REQUIRE(busy.size() == 1);
    PointerIndex::Get().SetHandle(nullptr, handle->at, handle->bytes);
    arena_.Settle(busy[0], 0);
    handle->at = 0;
  }
  Block* FreeRunOf(uint64_t address) {
    Block* found = nullptr;
    arena_.ForEachFreeRun([&](Block* first) {
      Block* last = first;
      while (last->next != nullptr && last->next->is_free()) last = last->next;
      if (first->begin <= address && address < last->end()) found = first;
    });
    REQUIRE(found != nullptr);
    return found;
  }

  uint64_t begin() const { return begin_; }
  Arena& arena() { return arena_; }
  std::vector<std::unique_ptr<Handle>>& handles() { return handles_; }

 private:
  static uint64_t NextRange() {
    static uint64_t next = uint64_t{1} << 40;
    return next += kGiB;
  }

  const uint64_t begin_;
  BlockPool blocks_;
  std::vector<std::unique_ptr<Handle>> handles_;
  Arena arena_{PointerIndex::kGranule, nullptr, &blocks_};
};

}  // namespace weir::test

#endif  // WEIR_TESTS_SUPPORT_ARENA_FIXTURE_H_
