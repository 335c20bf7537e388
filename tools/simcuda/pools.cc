#include "tools/simcuda/pools.h"

#include <algorithm>
#include <utility>

namespace weir::sim {

void Pool::UpdateHighs() {
  reserved_high = std::max(reserved_high, memory->reserved_bytes());
  used_high = std::max(used_high, memory->used_bytes());
}

void Pools::Clear() {
  pools_.clear();
  devices_.clear();
}

void Pools::AddDevice(std::shared_ptr<Arena> arena) {
  const int device = static_cast<int>(devices_.size());
  devices_.push_back({std::move(arena)});
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  Pool* pool = Create(properties, device);
  pool->is_default = true;
  devices_.back().default_pool = devices_.back().current_pool = pool;
}

Pool* Pools::Create(const CUmemPoolProps& properties, int device) {
  auto pool = std::make_unique<Pool>();
  pool->handle = reinterpret_cast<CUmemoryPool>(next_handle_);
  next_handle_ += 16;
  pool->device = device;
  pool->properties = properties;
  pool->rights.Set(device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  pool->memory = std::make_unique<Suballocator>(of(device).arena, device, space_, timeline_,
                                                Suballocator::Keep::kKeep);
  Pool* created = pool.get();
  pools_[created->handle] = std::move(pool);
  return created;
}

void Pools::Destroy(Pool* pool) {
  PerDevice& device = devices_[static_cast<size_t>(pool->device)];
  if (device.current_pool == pool) device.current_pool = device.default_pool;
  pool->destroyed = true;
  pool->memory->Trim(0);
  if (pool->live_allocations == 0) pools_.erase(pool->handle);
}

Pool* Pools::Find(CUmemoryPool handle) const {
  const auto found = pools_.find(handle);
  return found == pools_.end() || found->second->destroyed ? nullptr : found->second.get();
}

Range* Pools::Allocate(Pool* pool, uint64_t bytes) {
  CUdeviceptr base = 0;
  std::shared_ptr<Store> store;
  if (!pool->memory->Allocate(bytes, pool->properties.maxSize, &base, &store)) return nullptr;
  pool->UpdateHighs();
  ++pool->live_allocations;
  auto range = std::make_unique<Range>();
  range->base = base;
  range->bytes = bytes;
  range->kind = RangeKind::kPool;
  range->device = pool->device;
  range->store = std::move(store);
  range->pool = pool;
  return space_->Add(std::move(range));
}

void Pools::Free(CUdeviceptr base) {
  const Range* range = space_->Find(base);
  Pool* pool = range->pool;
  const uint64_t bytes = range->bytes;
  space_->Remove(base);
  pool->memory->Free(base, bytes);
  --pool->live_allocations;
  if (!pool->destroyed) return;
  pool->memory->Trim(0);
  if (pool->live_allocations == 0) pools_.erase(pool->handle);
}

void Pools::OnSynchronized(int device) {
  for (const auto& [handle, pool] : pools_) {
    if (pool->device == device) pool->memory->Trim(pool->release_threshold);
  }
}

void Pools::TrimAll(int device) {
  for (const auto& [handle, pool] : pools_) {
    if (pool->device == device) pool->memory->Trim(0);
  }
}

}  // namespace weir::sim
