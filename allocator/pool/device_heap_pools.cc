// DeviceHeap: capture pools and the routes to them.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "allocator/pool/device_heap.h"

namespace weir {

// ---- Capture pools ------------------------------------------------------------------------------

std::shared_ptr<CapturePool> HeapState::FindPool(uint64_t id, HeapError* error) {
  for (const auto& pool : pools_) {
    if (pool->id == id) return pool;
  }
  *error = HeapError(WEIR_ERROR_INVALID_ARGUMENT,
                     absl::StrCat("0x", absl::Hex(id), " is no capture pool, or was released"));
  return nullptr;
}

HeapError DeviceHeap::CreatePool(uint64_t id, const weir_pool_options_t& options) {
  if ((options.allocate == nullptr) != (options.deallocate == nullptr)) {
    return {WEIR_ERROR_INVALID_ARGUMENT,
            "a pool's source needs both functions, allocate and deallocate, or neither"};
  }
  auto pool = std::make_shared<CapturePool>();
  pool->id = id;
  pool->allocate = options.allocate;
  pool->deallocate = options.deallocate;
  pool->user = options.user;
  pool->no_split = options.no_split != 0;
  pool->use_on_oom = options.use_on_oom != 0;
  MutexLock lock(heap_mu_);
  pools_.push_back(std::move(pool));
  newest_pool_ = std::max(newest_pool_, id);
  return {};
}

HeapError DeviceHeap::SetPoolUseOnOom(uint64_t id, bool value) {
  MutexLock lock(heap_mu_);
  HeapError error;
  if (const auto pool = FindPool(id, &error)) pool->use_on_oom = value;
  return error;
}

HeapError DeviceHeap::SetPoolNoSplit(uint64_t id) {
  MutexLock lock(heap_mu_);
  HeapError error;
  const auto pool = FindPool(id, &error);
  if (pool == nullptr || pool->no_split) return error;
  const bool is_used = std::any_of(streams_.begin(), streams_.end(),
                                   [&](const auto& stream) { return stream->pool == pool; });
  if (is_used) {
    return {WEIR_ERROR_INVALID_ARGUMENT,
            "the pool has memory that may be split: call weir_pool_set_no_split before the first "
            "allocation from it"};
  }
  pool->no_split = true;
  return {};
}

HeapError DeviceHeap::RetainPool(uint64_t id) {
  MutexLock lock(heap_mu_);
  HeapError error;
  if (const auto pool = FindPool(id, &error)) ++pool->users;
  return error;
}

HeapError DeviceHeap::BeginRoute(uint64_t id, RouteFilter filter, void* user) {
  if (HeapError error = CheckNotObserving(); !error.ok()) return error;
  MutexLock space(space_mu_);
  CloseContextEpochs();  // while a capture does not forbid it yet
  MutexLock lock(heap_mu_);
  HeapError error;
  const auto pool = FindPool(id, &error);
  if (pool == nullptr) return error;
  Routes routes = *routes_;
  routes.push_back({pool, filter == nullptr ? ThreadNumber() : 0, filter, user});
  SetRoutes(std::move(routes));
  return {};
}

HeapError DeviceHeap::EndRoute(uint64_t id) {
  {
    MutexLock lock(heap_mu_);
    HeapError error;
    if (FindPool(id, &error) == nullptr) return error;
    Routes routes = *routes_;
    // The newest of the pool that the thread can mean.
    const auto route = std::find_if(routes.rbegin(), routes.rend(), [&](const Route& r) {
      return r.pool->id == id && (r.thread == 0 || r.thread == ThreadNumber());
    });
    if (route == routes.rend()) {
      return {WEIR_ERROR_INVALID_ARGUMENT,
              "no route to the capture pool was begun (a thread's route ends in its thread)"};
    }
    routes.erase(std::next(route).base());
    SetRoutes(std::move(routes));
  }
  TryCompleteDeferred();  // frees that waited for the end of the capture
  return {};
}

HeapError DeviceHeap::ReleasePool(uint64_t id) {
  if (HeapError error = CheckNotObserving(); !error.ok()) return error;
  if (HeapError error = ReleasePoolLocked(id); !error.ok()) return error;
  GiveBackToSources();
  return {};
}

HeapError DeviceHeap::ReleasePoolLocked(uint64_t id) {
  MutexLock space(space_mu_);  // no miss is about to give the pool memory
  {
    MutexLock lock(heap_mu_);
    HeapError error;
    const auto pool = FindPool(id, &error);
    if (pool == nullptr) return error;
    if (pool->users > 1) {
      --pool->users;
      return {};
    }
    Routes routes = *routes_;
    std::erase_if(routes, [&](const Route& route) { return route.pool == pool; });
    SetRoutes(std::move(routes));
    std::erase(pools_, pool);
    pool->users = 0;
    MakeOrdinary(id);
  }
  CloseContextEpochs();  // so that the memory can be proved complete during the next capture
  const CallSeries series(*driver_);
  context_is_captured_.reset();
  ReleaseLeaving(/*may_wait=*/false).IgnoreError();  // later calls try again
  return {};
}

void DeviceHeap::MakeOrdinary(uint64_t id) {
  for (const auto& stream : streams_) {
    if (stream->key.pool != id) continue;
    by_key_.erase(stream->key);
    stream->timeline.BecomeContext();
    for (Handle* h : handles_.all()) {
      // A graph may be running on any stream of the context.
      for (Mapping* m = h->mappings; m != nullptr; m = m->next) {
        if (m->arena->owner() == stream.get()) m->idle_epoch = stream->timeline.open();
      }
    }
    // Segments of sources, and unsplit ones, stay nobody's supply until they go back.
    stream->key = {kNoStream, 0, stream->has_segments() ? id : 0};
  }
  last_stream_ = nullptr;
  DeleteUnusedStreams();
}

void DeviceHeap::CloseContextEpochs() {
  if (has_routes_.load(std::memory_order_relaxed)) return;
  const CallSeries series(*driver_);
  context_is_captured_.reset();
  {
    MutexLock lock(heap_mu_);
    FlushCaches();  // the epochs of what they hold are known to the handles only then
    FlushKept();
  }
  for (StreamHeap* stream : Streams()) {
    StreamTimeline& timeline = stream->timeline;
    if (timeline.kind() != StreamTimeline::Kind::kContext) continue;
    bool needed = false;
    {
      MutexLock lock(heap_mu_);
      needed = timeline.has_deferred() && timeline.last_deferred_epoch() == timeline.open();
      needed |= stream->returning != nullptr && stream->returning->return_epoch == timeline.open();
      for (const Handle* h : handles_.all()) {
        for (const Mapping* m = h->mappings; m != nullptr; m = m->next) {
          needed |= m->arena->owner() == stream && m->idle_epoch == timeline.open();
        }
      }
    }
    if (needed) CloseEpoch(&timeline).IgnoreError();  // a head start only
  }
}

HeapError DeviceHeap::SetPoolLimit(uint64_t id, uint64_t bytes) {
  MutexLock lock(heap_mu_);
  HeapError error;
  if (const auto pool = FindPool(id, &error)) pool->limit = bytes;
  return error;
}

uint64_t DeviceHeap::PoolRoom(const StreamHeap* owner) {
  if (owner->key.pool == 0) return UINT64_MAX;
  HeapError gone;
  const auto pool = FindPool(owner->key.pool, &gone);
  if (pool == nullptr || pool->limit == UINT64_MAX) return UINT64_MAX;
  uint64_t held = 0;
  for (const Handle* h : handles_.all()) {
    if (h->arena() != nullptr && h->arena()->owner()->key.pool == pool->id) held += h->bytes;
  }
  return pool->limit > held ? pool->limit - held : 0;
}

// ---- Routes -------------------------------------------------------------------------------------

uint64_t DeviceHeap::PoolOf(Stream stream) {
  if (InsideSource::is_here()) return 0;
  std::shared_ptr<const Routes> routes;
  {
    MutexLock lock(heap_mu_);
    routes = routes_;
  }
  for (auto route = routes->rbegin(); route != routes->rend(); ++route) {
    const bool leads = route->filter == nullptr
                           ? route->thread == ThreadNumber()
                           : stream != kAnyStream && route->filter(stream, route->user) != 0;
    if (leads) return route->pool->id;
  }
  return 0;
}

void DeviceHeap::SetRoutes(Routes routes) {
  routes_ = std::make_shared<const Routes>(std::move(routes));
  has_routes_.store(!routes_->empty(), std::memory_order_relaxed);
  const CacheVisit visit(caches_);
  for (ThreadCache* cache : caches_) cache->EnableAllocation(!MayBeRouted(cache->thread()));
}

bool DeviceHeap::MayBeRouted(uint64_t thread) {
  return std::any_of(routes_->begin(), routes_->end(), [thread](const Route& route) {
    return route.filter != nullptr || route.thread == thread;
  });
}

}  // namespace weir
