#include "allocator/pool/context_replay.h"

namespace weir {
namespace {

// A polynomial over the sizes, modulo 2^64: the hash of the last n follows from two prefixes.
constexpr uint64_t kBase = 0x100000001B3ull;

constexpr uint64_t Power(uint64_t exponent) {
  uint64_t power = 1;
  while (exponent-- > 0) power *= kBase;
  return power;
}

uint64_t Mix(uint64_t x) {
  x ^= x >> 31;
  x *= 0x9E3779B97F4A7C15ull;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9ull;
  return x ^ (x >> 32);
}

}  // namespace

ContextReplay::Context ContextReplay::Next(uint64_t bytes) {
  if (table_ == nullptr) {
    table_.reset(static_cast<Bucket*>(std::calloc(kBuckets, sizeof(Bucket))));
    if (table_ == nullptr) return {};
    prefixes_.assign(kHistory, 0);
  }
  static constexpr std::array<uint64_t, 2> kPowers = {Power(kLengths[0]), Power(kLengths[1])};
  const uint64_t now = prefixes_[requests_ % kHistory];
  Context context;
  context.valid = true;
  for (size_t i = 0; i < kLengths.size(); ++i) {
    const uint64_t length = kLengths[i];
    const uint64_t last =
        requests_ < length ? now : now - prefixes_[(requests_ - length) % kHistory] * kPowers[i];
    context.keys[i] = Mix(last * 31 + bytes + i * 0x9E3779B97F4A7C15ull);
    for (const Entry& entry : table_[BucketOf(context.keys[i])]) {
      context.known |= entry.key == context.keys[i] && entry.address != 0;
    }
  }
  prefixes_[++requests_ % kHistory] = now * kBase + Mix(bytes);
  return context;
}

void ContextReplay::Remember(const Context& context, uint64_t address) {
  for (const uint64_t key : context.keys) {
    Bucket& bucket = table_[BucketOf(key)];
    auto entry = std::find_if(bucket.begin(), bucket.end(),
                              [&](const Entry& e) { return e.key == key && e.address == address; });
    if (entry == bucket.end()) entry = bucket.begin();  // the longest unused, or an empty one
    *entry = {key, address};
    std::rotate(entry, entry + 1, bucket.end());
  }
}

}  // namespace weir
