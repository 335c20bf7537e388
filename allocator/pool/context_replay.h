// ContextReplay: where requests were placed when the same requests had come before them.
//
// Programs repeat themselves: a training step asks for the same sizes in the same order as the one
// before. A request's *context* is a hash of the large sizes that were asked for before it on its
// stream, the last 1,024 and the last 256 of them, and of its own. Under each context the addresses
// that served it are remembered; the one used longest ago that is free now is taken again, so that
// a period finds the mappings of the last one. A context that was seen before also tells that
// mapping memory at a fresh address will pay: the address will be wanted again.
//
// Tables of fixed size, so that nothing is allocated later: places are a ring, the oldest is
// forgotten first, and so are contexts that no place is left of. Guarded by the heap lock.
#ifndef WEIR_POOL_CONTEXT_REPLAY_H_
#define WEIR_POOL_CONTEXT_REPLAY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace weir {

class ContextReplay {
 public:
  struct Context {
    std::array<uint64_t, 2> keys{};
    bool valid = false;  // the keys are
    bool known = false;  // a request was placed in this context before
  };

  // The context of the next request; it becomes part of the contexts of later ones. Not valid if
  // there is no host memory for the tables.
  Context Next(uint64_t bytes);

  // Calls take(address) for the addresses remembered, the longest unused first, until it returns
  // true. Whether it did.
  template <typename Take>
  bool Find(const Context& context, Take take) const {
    if (!context.known || tables_ == nullptr) return false;
    for (const uint64_t key : context.keys) {
      const List* list = FindList(key);
      if (list == nullptr) continue;
      uint32_t place = list->oldest;
      for (uint32_t i = 0; i < list->count; ++i, place = tables_->places[place].newer) {
        if (take(tables_->places[place].address)) return true;
      }
    }
    return false;
  }
  // Contexts may come from the replay of a stream that has ended meanwhile; they lead nowhere here.
  void Remember(const Context& context, uint64_t address);

 private:
  static constexpr std::array<uint64_t, 2> kLengths = {1024, 256};
  static constexpr uint64_t kHistory = 2048;
  static constexpr uint64_t kBuckets = 1 << 17;
  static constexpr uint32_t kPlaces = 1 << 19;
  static constexpr uint32_t kMostOfOne = 64;  // addresses under one context

  // An address under a context. The places of one context are a circle, by use.
  struct Place {
    uint64_t key;
    uint64_t address;  // 0: unused
    uint32_t older, newer;
  };
  struct List {
    uint64_t key;
    uint32_t oldest;
    uint32_t count;  // 0: unused
  };
  struct alignas(64) Bucket {
    std::array<List, 4> lists;
  };
  struct Tables {  // zero-filled; 20 MiB, touched as they fill
    std::array<Bucket, kBuckets> buckets;
    std::array<Place, kPlaces> places;
    std::array<uint64_t, kHistory> prefixes;  // hash of the first n sizes, at n % kHistory
  };
  struct Free {
    void operator()(Tables* tables) const;
  };

  // The bucket is the highest bits of a key.
  static constexpr int kBucketShift = 47;
  static_assert(kBuckets == uint64_t{1} << (64 - kBucketShift));
  Bucket& BucketOf(uint64_t key) const { return tables_->buckets[key >> kBucketShift]; }

  List* FindList(uint64_t key) const {
    for (List& list : BucketOf(key).lists) {
      if (list.key == key && list.count > 0) return &list;
    }
    return nullptr;
  }
  List* LeastList(uint64_t key) const;
  List* FindOrMakeList(uint64_t key);
  void Append(List* list, uint32_t place);  // as the newest
  void Remove(List* list, uint32_t place);
  void ForgetOldest(List* list);

  // Hashes of the sizes before the next request, by length. They alone tell the buckets of its
  // context, which are fetched while the request before it is served.
  std::array<uint64_t, 2> histories_{};
  uint64_t requests_ = 0;
  uint32_t next_place_ = 0;
  std::unique_ptr<Tables, Free> tables_;
};

}  // namespace weir

#endif  // WEIR_POOL_CONTEXT_REPLAY_H_
