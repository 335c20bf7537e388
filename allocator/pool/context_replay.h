// ContextReplay: where requests were placed when the same requests had come before them.
//
// Programs repeat themselves: a training step asks for the same sizes in the same order as the one
// before. A request's *context* is a hash of the large sizes that were asked for before it on its
// stream, the last 1,024 and the last 256 of them, and of its own. Under each context the addresses
// that served it are remembered; the one used longest ago that is free now is taken again, so that
// a period finds the mappings of the last one. A context that was seen before also tells that
// mapping memory at a fresh address will pay: the address will be wanted again.
//
// A fixed table, so that nothing is allocated later: what is used least is forgotten. Guarded by
// the heap lock.
#ifndef WEIR_POOL_CONTEXT_REPLAY_H_
#define WEIR_POOL_CONTEXT_REPLAY_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

namespace weir {

class ContextReplay {
 public:
  struct Context {
    std::array<uint64_t, 2> keys{};
    bool valid = false;  // the keys are
    bool known = false;  // a request was placed in this context before
  };

  // The context of the next request; it becomes part of the contexts of later ones. Not valid if
  // there is no host memory for the table.
  Context Next(uint64_t bytes);

  // Calls take(address) for the addresses remembered, the longest unused first, until it returns
  // true. Whether it did.
  template <typename Take>
  bool Find(const Context& context, Take take) const {
    for (const uint64_t key : context.keys) {
      for (const Entry& entry : table_[BucketOf(key)]) {
        if (entry.key == key && entry.address != 0 && take(entry.address)) return true;
      }
    }
    return false;
  }
  void Remember(const Context& context, uint64_t address);

 private:
  static constexpr std::array<uint64_t, 2> kLengths = {1024, 256};
  static constexpr uint64_t kHistory = 2048;
  static constexpr uint64_t kBuckets = 1 << 13;

  struct Entry {
    uint64_t key;
    uint64_t address;  // 0: none
  };
  using Bucket = std::array<Entry, 64>;  // the longest unused first
  struct Free {
    void operator()(Bucket* table) const { std::free(table); }
  };

  static uint64_t BucketOf(uint64_t key) { return key >> 51; }
  static_assert(kBuckets == uint64_t{1} << (64 - 51));

  uint64_t requests_ = 0;
  std::unique_ptr<Bucket[], Free> table_;  // 8 MiB, touched as it fills
  std::vector<uint64_t> prefixes_;         // hash of the first n sizes, at n % kHistory
};

}  // namespace weir

#endif  // WEIR_POOL_CONTEXT_REPLAY_H_
