// Handles of physical memory (CUmemGenericAllocationHandle) and their lifetime: a handle value
// lives while it has references (cuMemCreate, cuMemRetainAllocationHandle, cuMemImport...) or
// mappings, a Store while a handle of it lives or somebody else (a Peer) holds it. Values are never
// used again. Under the simulator's lock.
#ifndef WEIR_TOOLS_SIMCUDA_MEMORY_HANDLES_H_
#define WEIR_TOOLS_SIMCUDA_MEMORY_HANDLES_H_

#include <cuda.h>

#include <cstdint>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "tools/simcuda/physical_memory.h"

namespace weir::sim {

struct MemoryHandle {
  std::shared_ptr<Store> store;
  CUmemAllocationProp properties;
  uint64_t references = 1;
  uint64_t mappings = 0;
};

class MemoryHandles {
 public:
  void Clear() { handles_.clear(); }

  CUmemGenericAllocationHandle Add(std::shared_ptr<Store> store, const CUmemAllocationProp& prop);
  // Null if the program holds no reference to such a handle.
  MemoryHandle* Find(CUmemGenericAllocationHandle handle);
  bool Release(CUmemGenericAllocationHandle handle);  // false if it has no reference
  // By whoever has a mapping of the handle, so these cannot fail.
  void Retain(CUmemGenericAllocationHandle handle) { ++handles_.at(handle).references; }
  void AddMapping(CUmemGenericAllocationHandle handle) { ++handles_.at(handle).mappings; }
  void RemoveMapping(CUmemGenericAllocationHandle handle);

  const CUmemAllocationProp& properties(CUmemGenericAllocationHandle handle) const {
    return handles_.at(handle).properties;
  }

 private:
  void EraseIfDead(CUmemGenericAllocationHandle handle);

  absl::flat_hash_map<CUmemGenericAllocationHandle, MemoryHandle> handles_;
  CUmemGenericAllocationHandle next_ = 0x1000;
};

}  // namespace weir::sim

#endif  // WEIR_TOOLS_SIMCUDA_MEMORY_HANDLES_H_
