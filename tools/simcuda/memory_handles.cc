#include "tools/simcuda/memory_handles.h"

#include <utility>

namespace weir::sim {
CUmemGenericAllocationHandle MemoryHandles::Add(std::shared_ptr<Store> store,
                                                const CUmemAllocationProp& prop) {
  const CUmemGenericAllocationHandle handle = next_++;
  handles_.emplace(handle, MemoryHandle{std::move(store), prop});
  return handle;
}

MemoryHandle* MemoryHandles::Find(CUmemGenericAllocationHandle handle) {
  const auto found = handles_.find(handle);
  return found == handles_.end() || found->second.references == 0 ? nullptr : &found->second;
}

bool MemoryHandles::Release(CUmemGenericAllocationHandle handle) {
  MemoryHandle* found = Find(handle);
  if (found == nullptr) return false;
  --found->references;
  EraseIfDead(handle);
  return true;
}

void MemoryHandles::RemoveMapping(CUmemGenericAllocationHandle handle) {
  --handles_.at(handle).mappings;
  EraseIfDead(handle);
}

void MemoryHandles::EraseIfDead(CUmemGenericAllocationHandle handle) {
  const auto found = handles_.find(handle);
  if (found->second.references == 0 && found->second.mappings == 0) handles_.erase(found);
}

}  // namespace weir::sim
