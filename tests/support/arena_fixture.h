// An arena over addresses that nobody else uses, mapped on request as a miss would, without a
// driver.
#ifndef WEIR_TESTS_SUPPORT_ARENA_FIXTURE_H_
#define WEIR_TESTS_SUPPORT_ARENA_FIXTURE_H_

#include <algorithm>
#include <memory>
#include <vector>

#include "allocator/block/arena.h"
#include "tests/support/catch.h"

namespace weir::test {

class ArenaFixture {
 public:
  // The owner is only compared.
  explicit ArenaFixture(uint64_t granules, StreamHeap* owner = nullptr)
      : begin_(NextRange()), arena_(PointerIndex::kGranule, owner, &records_) {
    REQUIRE(PointerIndex::Get().Cover(begin_, granules * PointerIndex::kGranule));
    arena_.AddHoles(begin_, granules * PointerIndex::kGranule);
  }
  ~ArenaFixture() { PointerIndex::Get().SetMapping(nullptr, begin_, kGiB); }

  // What a miss does, without a driver.
  Handle* Map(uint64_t granule, uint64_t count) {
    handles_.push_back(std::make_unique<Handle>());
    Handle* handle = handles_.back().get();
    handle->id = handles_.size();
    handle->bytes = count * PointerIndex::kGranule;
    MapAt(handle, granule);
    return handle;
  }
  // Maps the handle at one more address.
  Mapping* MapAt(Handle* handle, uint64_t granule, bool guest = false) {
    Mapping* mapping = records_.mappings.New();
    mapping->at = begin_ + granule * PointerIndex::kGranule;
    mapping->arena = &arena_;
    mapping->guest = guest;
    mapping->mapped = true;
    const uint64_t end = mapping->at + handle->bytes;
    Block* busy = arena_.CarveBusy(FreeRunOf(mapping->at), mapping->at, end);
    records_.Attach(mapping, handle);
    PointerIndex::Get().SetMapping(mapping, mapping->at, handle->bytes);
    arena_.Settle(busy, mapping->at);
    return mapping;
  }
  void Unmap(Handle* handle) {
    while (handle->mappings != nullptr) Unmap(handle->mappings);
  }
  void Unmap(Mapping* mapping) {
    Block* busy = arena_.CarveMapping(*mapping);
    PointerIndex::Get().SetMapping(nullptr, mapping->at, mapping->bytes);
    records_.Detach(mapping);
    records_.mappings.Delete(mapping);
    arena_.Settle(busy, 0);
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

  // What a merge does, without a driver: the guest's addresses lead to the host's memory.
  void Merge(Mapping* guest, Mapping* host) {
    const uint64_t begin = guest->at, end = begin + guest->bytes;
    std::vector<AddressRange> used;
    for (Block* b = PointerIndex::Get().FindContaining(begin); b != nullptr && b->begin < end;
         b = b->next) {
      const uint64_t from = std::max(b->begin, begin), to = std::min(b->end(), end);
      if (b->is_counted()) {
        used.push_back({from, to - from});
      } else {
        b = guest->arena->CarveBusy(b, from, to);
      }
    }
    for (const AddressRange& range : used) {
      host->arena->Lend(host->at + (range.begin - begin), range.bytes);
    }
    records_.blocks.Hold(2 * used.size());
    records_.Detach(guest);
    guest->guest = true;
    records_.Attach(guest, host->handle);
    guest->arena->BecomeGuest(*guest);
  }

  uint64_t begin() const { return begin_; }
  Arena& arena() { return arena_; }
  HeapRecords& records() { return records_; }
  std::vector<std::unique_ptr<Handle>>& handles() { return handles_; }

 private:
  static uint64_t NextRange() {
    static uint64_t next = uint64_t{1} << 40;
    return next += kGiB;
  }

  const uint64_t begin_;
  HeapRecords records_;
  std::vector<std::unique_ptr<Handle>> handles_;
  Arena arena_;
};

}  // namespace weir::test

#endif  // WEIR_TESTS_SUPPORT_ARENA_FIXTURE_H_
