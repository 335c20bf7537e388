#include "allocator/pool/thread_caches.h"

#include <atomic>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "allocator/base/forked.h"
#include "allocator/base/mutex.h"
#include "allocator/pool/device_heap.h"

namespace weir {
namespace {

// Records are never returned to the system, so that a heap may look at one whose thread is ending.
struct Unused {
  Mutex mu;
  std::vector<ThreadCache*> caches ABSL_GUARDED_BY(mu);
};
Unused& UnusedCaches() {
  static Unused* const unused = new Unused();
  return *unused;
}

constinit thread_local bool thread_is_ending = false;

}  // namespace

// Its destructor gives what is in the caches back when the thread ends.
struct ThreadCaches::Own {
  struct Hash {
    size_t operator()(const std::pair<const DeviceHeap*, Stream>& key) const {
      return absl::HashOf(key.first, key.second);
    }
  };
  ~Own();
  // Not of Abseil, whose tables do not survive that the host has no memory.
  std::unordered_map<std::pair<const DeviceHeap*, Stream>, ThreadCache*, Hash> caches;
};

ThreadCaches::Own& ThreadCaches::own() {
  thread_local Own own;
  return own;
}

constinit thread_local ThreadCache* ThreadCaches::last_ = nullptr;

uint64_t ThreadNumber() {
  static std::atomic<uint64_t> next{1};
  thread_local const uint64_t number = next.fetch_add(1);
  return number;
}

ThreadCache* ThreadCaches::Find(const DeviceHeap* heap, Stream stream) {
  if (last_ != nullptr && last_->Serves(heap, stream)) return last_;
  if (thread_is_ending) return nullptr;
  const auto& caches = own().caches;
  const auto found = caches.find({heap, stream});
  if (found == caches.end()) return nullptr;
  last_ = found->second;
  return last_;
}

ThreadCache* ThreadCaches::FindOrMake(const DeviceHeap* heap, Stream stream) {
  if (ThreadCache* found = Find(heap, stream)) return found;
  if (thread_is_ending) return nullptr;
  try {
    ThreadCache*& slot = own().caches[{heap, stream}];
    Unused& unused = UnusedCaches();
    MutexLock lock(unused.mu);
    if (unused.caches.empty()) {
      slot = new ThreadCache();
    } else {
      slot = unused.caches.back();
      unused.caches.pop_back();
    }
    slot->set_thread(ThreadNumber());
    return last_ = slot;
  } catch (const std::bad_alloc&) {
    own().caches.erase({heap, stream});
    return nullptr;
  }
}

ThreadCaches::Own::~Own() {
  thread_is_ending = true;
  last_ = nullptr;
  if (IsForked()) return;
  for (const auto& [key, cache] : caches) {
    if (DeviceHeap* heap = cache->heap()) heap->RetireCache(cache);
    Unused& unused = UnusedCaches();
    MutexLock lock(unused.mu);
    try {
      unused.caches.push_back(cache);
    } catch (const std::bad_alloc&) {
      // The record is lost; nothing was in it any more.
    }
  }
}

CacheVisit::CacheVisit(const std::vector<ThreadCache*>& caches)
    : caches_(caches), self_(ThreadNumber()) {
  bool others = false;
  for (ThreadCache* cache : caches_) {
    if (cache->thread() == self_) continue;
    cache->lock().Stop();
    others = true;
  }
  if (!others) return;
  OwnerLock::Fence();
  for (ThreadCache* cache : caches_) {
    if (cache->thread() != self_) cache->lock().AwaitOwner();
  }
}

CacheVisit::~CacheVisit() {
  for (ThreadCache* cache : caches_) {
    if (cache->thread() != self_) cache->lock().Resume();
  }
}

}  // namespace weir
