// DeviceHeap: which heap serves a request: streams, capture pools, routes.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "allocator/pool/device_heap.h"

namespace weir {
namespace {

const Stream kLegacyStream = reinterpret_cast<Stream>(uintptr_t{1});
const Stream kPerThreadStream = reinterpret_cast<Stream>(uintptr_t{2});

}  // namespace

// ---- Streams ------------------------------------------------------------------------------------

StreamKey DeviceHeap::KeyOf(Stream stream) {
  if (stream == kLegacyStream) return {nullptr};
  if (stream == kPerThreadStream) return {stream, ThreadNumber()};
  return {stream};
}

StreamHeap* DeviceHeap::FindStream(StreamKey key) {
  if (last_stream_ != nullptr && last_stream_->key == key) return last_stream_;
  const auto it = by_key_.find(key);
  if (it == by_key_.end()) return nullptr;
  last_stream_ = it->second;
  return it->second;
}

StreamHeap* DeviceHeap::StreamFor(StreamKey key, HeapError* error) {
  {
    MutexLock lock(heap_mu_);
    if (StreamHeap* found = FindStream(key)) return found;
  }
  const bool is_special =
      key.stream == nullptr || key.stream == kPerThreadStream || key.stream == kAnyStream;
  if (!is_special) {
    int device = driver_->ordinal();
    if (DriverStatus status = driver_->StreamDevice(key.stream, &device); !status.ok()) {
      *error = HeapError(WEIR_ERROR_INVALID_ARGUMENT,
                         absl::StrCat("not a stream of CUDA: ", status.ToString()));
      return nullptr;
    }
    if (device != driver_->ordinal()) {
      *error =
          HeapError(WEIR_ERROR_INVALID_ARGUMENT,
                    absl::StrCat("the stream belongs to device ", device, ", the memory to device ",
                                 driver_->ordinal(), ": call weir_set_device or name the device"));
      return nullptr;
    }
  }
  // A marker on the per-thread default stream could be recorded only by its own thread, so that
  // stream is proved complete through the context.
  const auto kind = key.stream == kPerThreadStream || key.stream == kAnyStream
                        ? StreamTimeline::Kind::kContext
                        : StreamTimeline::Kind::kStream;
  MutexLock lock(heap_mu_);
  if (StreamHeap* found = FindStream(key)) return found;
  if (key.pool != 0 && FindPool(key.pool, error) == nullptr) return nullptr;
  auto made = std::make_unique<StreamHeap>(this, kind, key, granule_, &blocks_);
  streams_.reserve(streams_.size() + 1);
  by_key_[key] = made.get();
  streams_.push_back(std::move(made));
  return streams_.back().get();
}

HeapError DeviceHeap::StreamDestroyed(Stream stream) {
  const StreamKey key = KeyOf(stream);
  if (stream == kAnyStream || stream == kNoStream) return {};
  MutexLock space(space_mu_);  // no miss of another thread is about to use the handle
  MutexLock lock(heap_mu_);
  for (const auto& gone : streams_) {
    if (!gone->IsStream(key)) continue;
    UnbindCaches(gone.get());
    by_key_.erase(gone->key);
    gone->timeline.BecomeContext();
    // The driver may give the handle's value to a new stream. A pool keeps its memory.
    gone->key = {kNoStream, 0, gone->key.pool};
  }
  last_stream_ = nullptr;
  return {};
}

// ---- Capture pools ------------------------------------------------------------------------------

std::shared_ptr<CapturePool> DeviceHeap::FindPool(uint64_t id, HeapError* error) {
  for (const auto& pool : pools_) {
    if (pool->id == id) return pool;
  }
  *error = HeapError(WEIR_ERROR_INVALID_ARGUMENT,
                     absl::StrCat("0x", absl::Hex(id), " is no capture pool, or was released"));
  return nullptr;
}

HeapError DeviceHeap::CreatePool(uint64_t id) {
  MutexLock lock(heap_mu_);
  pools_.push_back(std::make_shared<CapturePool>(CapturePool{id, 1}));
  return {};
}

HeapError DeviceHeap::RetainPool(uint64_t id) {
  MutexLock lock(heap_mu_);
  HeapError error;
  if (const auto pool = FindPool(id, &error)) ++pool->users;
  return error;
}

HeapError DeviceHeap::BeginRoute(uint64_t id, RouteFilter filter, void* user) {
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
  MutexLock space(space_mu_);  // no miss is about to give the pool memory
  MutexLock lock(heap_mu_);
  HeapError error;
  const auto pool = FindPool(id, &error);
  if (pool == nullptr) return error;
  const bool is_routed =
      std::any_of(routes_->begin(), routes_->end(), [&](const Route& r) { return r.pool == pool; });
  if (pool->users == 1 && is_routed) {
    return {WEIR_ERROR_INVALID_ARGUMENT,
            "requests are still routed to the capture pool: call weir_pool_end first"};
  }
  if (--pool->users > 0) return {};
  for (const auto& stream : streams_) {
    if (stream->key.pool != id) continue;
    by_key_.erase(stream->key);
    stream->timeline.BecomeContext();
    for (Handle* h : handles_.all()) {
      // A graph may be running on any stream of the context.
      if (h->arena != nullptr && h->arena->owner() == stream.get())
        h->idle_epoch = stream->timeline.open();
    }
    stream->key = {kNoStream};
  }
  last_stream_ = nullptr;
  std::erase(pools_, pool);
  return {};
}

// ---- Routes -------------------------------------------------------------------------------------

uint64_t DeviceHeap::PoolOf(Stream stream) {
  std::shared_ptr<const Routes> routes;
  {
    MutexLock lock(heap_mu_);
    routes = routes_;
  }
  for (auto route = routes->rbegin(); route != routes->rend(); ++route) {
    const bool leads = route->filter != nullptr ? route->filter(stream, route->user) != 0
                                                : route->thread == ThreadNumber();
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
