#include "allocator/pool/thread_cache.h"

#include "allocator/base/check.h"

namespace weir {

bool ThreadCache::Has(uint64_t bytes) const {
  if (bytes > kMaxBytes) return false;
  if (bytes > kMaxSmallBytes) return blocks_[BinOf(bytes)] != nullptr;
  return counts_[static_cast<size_t>(SizeClassOf(bytes))] != 0;
}

size_t ThreadCache::SpaceFor(int size_class) const {
  const auto c = static_cast<size_t>(size_class);
  const uint64_t below_limit = (limit_ - std::min(bytes_, limit_)) / kCacheClasses[c].size;
  return std::min<size_t>(kCacheClasses[c].capacity - counts_[c], below_limit);
}

void ThreadCache::AddFree(int size_class, const SmallObject& object) {
  const auto c = static_cast<size_t>(size_class);
  WEIR_DCHECK(counts_[c] < kCacheClasses[c].capacity);
  entries_[kCacheClasses[c].first + counts_[c]++] = object;
  bytes_ += kCacheClasses[c].size;
}

void ThreadCache::Bind(DeviceHeap* heap, StreamHeap* owner, Stream stream, int device,
                       uint64_t limit) {
  WEIR_DCHECK(bytes_ == 0);
  heap_.store(heap);
  owner_ = owner;
  allocates_on_ = stream;
  frees_on_.store(stream);
  device_ = device;
  limit_ = limit;
}

void ThreadCache::Unbind() {
  WEIR_DCHECK(bytes_ == 0 && room.requested == 0 && room.allocated == 0 && room.blocks == 0);
  owner_ = nullptr;
  allocates_on_ = kNoStream;
  frees_on_.store(kNoStream);
}

}  // namespace weir
