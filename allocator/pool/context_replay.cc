#include "allocator/pool/context_replay.h"

#include <sys/mman.h>

#include <algorithm>

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

void ContextReplay::Free::operator()(Tables* tables) const { munmap(tables, sizeof(Tables)); }

ContextReplay::Context ContextReplay::Next(uint64_t bytes) {
  if (tables_ == nullptr) {
    void* memory = mmap(nullptr, sizeof(Tables), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return {};
    madvise(memory, sizeof(Tables), MADV_HUGEPAGE);  // look-ups are spread all over it
    tables_.reset(static_cast<Tables*>(memory));
  }
  Context context;
  context.valid = true;
  constexpr uint64_t kRest = (uint64_t{1} << kBucketShift) - 1;
  for (size_t i = 0; i < kLengths.size(); ++i) {
    const uint64_t key = (histories_[i] & ~kRest) | (Mix(histories_[i] * 31 + bytes) & kRest);
    context.keys[i] = key;
    const bool known = FindList(key) != nullptr;
    context.known |= known;
    // What Remember will forget for this context, and for the places that it takes.
    if (!known) __builtin_prefetch(&tables_->places[LeastList(key)->oldest]);
    const Place& place = tables_->places[(next_place_ + i) % kPlaces];
    if (place.address != 0) __builtin_prefetch(&BucketOf(place.key));
  }
  static constexpr std::array<uint64_t, 2> kPowers = {Power(kLengths[0]), Power(kLengths[1])};
  const uint64_t all = tables_->prefixes[requests_ % kHistory] * kBase + Mix(bytes);
  tables_->prefixes[++requests_ % kHistory] = all;
  for (size_t i = 0; i < kLengths.size(); ++i) {
    const uint64_t length = kLengths[i];
    const uint64_t last =
        requests_ < length ? all
                           : all - tables_->prefixes[(requests_ - length) % kHistory] * kPowers[i];
    histories_[i] = Mix(last + i * 0x9E3779B97F4A7C15ull);
    __builtin_prefetch(&BucketOf(histories_[i]));
  }
  return context;
}

ContextReplay::List* ContextReplay::LeastList(uint64_t key) const {
  std::array<List, 4>& lists = BucketOf(key).lists;
  return std::min_element(lists.begin(), lists.end(),
                          [](const List& a, const List& b) { return a.count < b.count; });
}

ContextReplay::List* ContextReplay::FindOrMakeList(uint64_t key) {
  if (List* list = FindList(key)) return list;
  List* least = LeastList(key);
  while (least->count > 0) ForgetOldest(least);
  least->key = key;
  return least;
}

void ContextReplay::Append(List* list, uint32_t place) {
  std::array<Place, kPlaces>& places = tables_->places;
  if (list->count++ == 0) {
    list->oldest = places[place].older = places[place].newer = place;
    return;
  }
  const uint32_t oldest = list->oldest, newest = places[oldest].older;
  places[place].older = newest;
  places[place].newer = oldest;
  places[newest].newer = places[oldest].older = place;
}

void ContextReplay::Remove(List* list, uint32_t place) {
  std::array<Place, kPlaces>& places = tables_->places;
  const uint32_t older = places[place].older, newer = places[place].newer;
  places[older].newer = newer;
  places[newer].older = older;
  if (list->oldest == place) list->oldest = newer;
  --list->count;
}

void ContextReplay::ForgetOldest(List* list) {
  const uint32_t place = list->oldest;
  Remove(list, place);
  tables_->places[place].address = 0;
}

void ContextReplay::Remember(const Context& context, uint64_t address) {
  if (tables_ == nullptr) return;
  std::array<Place, kPlaces>& places = tables_->places;
  for (const uint64_t key : context.keys) {
    List* list = FindOrMakeList(key);
    uint32_t place = list->oldest;
    uint32_t left = list->count;
    while (left > 0 && places[place].address != address) {
      place = places[place].newer;
      --left;
    }
    if (left > 0) {
      Remove(list, place);
      Append(list, place);
      continue;
    }
    if (list->count >= kMostOfOne) ForgetOldest(list);
    place = next_place_++ % kPlaces;
    if (places[place].address != 0) Remove(FindList(places[place].key), place);
    places[place].key = key;
    places[place].address = address;
    Append(list, place);
  }
}

}  // namespace weir
