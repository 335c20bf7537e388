// DeviceHeap: how thread caches are filled and emptied. All under the heap lock, without a
// driver call.
#include <algorithm>

#include "allocator/base/check.h"
#include "allocator/pool/device_heap.h"

namespace weir {

ThreadCache* DeviceHeap::CacheOf(StreamHeap* owner) {
  if (options_.thread_cache_bytes == 0 || records_.has_lost || owner->is_any() ||
      owner->key.stream == kNoStream || owner->key.pool != 0) {
    return nullptr;
  }
  ThreadCache* cache = ThreadCaches::FindOrMake(this, owner->key.stream);
  if (cache == nullptr || cache->owner() == owner) return cache;
  if (cache->heap() != this) {
    try {
      caches_.push_back(cache);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }
  cache->Bind(this, owner, owner->key.stream, driver_->ordinal(), options_.thread_cache_bytes);
  cache->EnableAllocation(!MayBeRouted(cache->thread()));
  return cache;
}

uint64_t DeviceHeap::AllocateThrough(ThreadCache* cache, const Request& request) {
  if (cache->Has(request.bytes)) {
    GrantRoom(cache, request.bytes,
              request.size_class >= 0 ? SizeOfClass(request.size_class) : request.block);
    return cache->Pop(request.bytes);
  }
  StreamHeap* owner = cache->owner();
  const uint64_t address = TryAllocate(owner, request);
  if (address == 0 || request.size_class < 0) return address;
  // A batch more, for the next ones; half of the space stays for frees.
  for (size_t i = cache->SpaceFor(request.size_class) / 2; i > 0; --i) {
    const SmallObject object = owner->spans.TryTake(request.size_class);
    if (object.address == 0) break;
    cache->AddFree(request.size_class, object);
  }
  return address;
}

bool DeviceHeap::FreeThrough(ThreadCache* cache, const Found& found, uint64_t address) {
  Block* block = found.block;
  if (cache->Push(block, address)) return true;
  // Making space would not help a block with recorded uses, or one larger than the whole cache.
  if (found.has_uses() || found.bytes() > options_.thread_cache_bytes) return false;
  const auto put_back = [this](Block* b, uint64_t at) {
    heap_mu_.AssertHeld();
    Uncache(b, at);
  };
  if (cache->cached_bytes() + SizeOfClass(kNumSizeClasses - 1) > options_.thread_cache_bytes ||
      block->span == nullptr) {
    cache->TakeOut(/*all=*/false, put_back);
  } else {
    cache->TakeOutOf(block->span->size_class, /*all=*/false, put_back);
  }
  // What it may hand out beyond the spare room, others can use.
  ReclaimRoom(cache);
  return cache->Push(block, address);
}

void DeviceHeap::Uncache(Block* block, uint64_t address) {
  Found found{block, 0};
  if (block->span != nullptr) {
    WEIR_CHECK(SpanLists::ObjectAt(*block->span, address, &found.object));
  }
  PutBack(found, /*keep=*/false);
}

uint64_t DeviceHeap::FlushCaches() {
  const CacheVisit visit(caches_);
  uint64_t bytes = 0;
  for (ThreadCache* cache : caches_) {
    bytes += cache->cached_bytes();
    Flush(cache);
  }
  return bytes;
}

void DeviceHeap::Flush(ThreadCache* cache) {
  cache->TakeOut(/*all=*/true, [this](Block* block, uint64_t address) {
    heap_mu_.AssertHeld();
    Uncache(block, address);
  });
  ReclaimRoom(cache);
}

void DeviceHeap::UnbindCaches(const StreamHeap* owner) {
  const CacheVisit visit(caches_);
  for (ThreadCache* cache : caches_) {
    if (owner != nullptr && cache->owner() != owner) continue;
    if (cache->owner() == nullptr) continue;
    Flush(cache);
    cache->Unbind();
  }
  if (owner == nullptr) {
    for (ThreadCache* cache : caches_) cache->set_heap(nullptr);
  }
}

void DeviceHeap::RetireCache(ThreadCache* cache) {
  MutexLock lock(heap_mu_);
  if (cache->owner() != nullptr) {
    Flush(cache);
    cache->Unbind();
  }
  std::erase(caches_, cache);
  cache->set_heap(nullptr);
}

ThreadCache* DeviceHeap::OwnCache() {
  ThreadCache* cache = ThreadCaches::last();
  return cache != nullptr && cache->heap() == this && cache->owner() != nullptr ? cache : nullptr;
}

}  // namespace weir
