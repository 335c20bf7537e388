// Memory pools of the stream-ordered allocator. Under the simulator's lock.
//
// Policy, the strictest that is legal: freed memory is reused only after the free has executed on
// its stream (the reuse attributes are kept but change nothing), and an allocation that finds no
// memory waits for queued frees before it fails. Every allocation is a new physical object to the
// checker, and both the allocation and the free write the whole range on their streams, so that use
// before the one or after the other is reported.
#ifndef WEIR_TOOLS_SIMCUDA_POOLS_H_
#define WEIR_TOOLS_SIMCUDA_POOLS_H_

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tools/simcuda/address_space.h"
#include "tools/simcuda/suballocator.h"

namespace weir::sim {

struct Pool {
  CUmemoryPool handle = nullptr;
  int device = 0;
  bool is_default = false;
  bool destroyed = false;  // lives on until its last allocation is freed
  CUmemPoolProps properties{};
  AccessRights rights;
  int reuse[3] = {1, 1, 1};  // attributes 1 to 3
  uint64_t release_threshold = 0;
  uint64_t reserved_high = 0;
  uint64_t used_high = 0;
  uint64_t live_allocations = 0;
  std::unique_ptr<Suballocator> memory;

  void UpdateHighs();
};

class Pools {
 public:
  Pools(AddressSpace* space, Timeline* timeline) : space_(space), timeline_(timeline) {}

  void Clear();
  // A default pool per device, in order of the ordinals.
  void AddDevice(std::shared_ptr<Arena> arena);

  Pool* Create(const CUmemPoolProps& properties, int device);
  void Destroy(Pool* pool);
  // Null if there is no such pool or it was destroyed.
  Pool* Find(CUmemoryPool handle) const;
  Pool* default_pool(int device) const { return of(device).default_pool; }
  Pool* current_pool(int device) const { return of(device).current_pool; }
  void set_current_pool(int device, Pool* pool) {
    devices_[static_cast<size_t>(device)].current_pool = pool;
  }

  // An allocation in the page table; null if memory is short.
  Range* Allocate(Pool* pool, uint64_t bytes);
  // Takes an allocation out of the page table and gives its memory to its pool.
  void Free(CUdeviceptr base);
  // Gives back what pools above their threshold keep.
  void OnSynchronized(int device);
  void TrimAll(int device);

 private:
  struct PerDevice {
    std::shared_ptr<Arena> arena;
    Pool* default_pool = nullptr;
    Pool* current_pool = nullptr;
  };
  const PerDevice& of(int device) const { return devices_[static_cast<size_t>(device)]; }

  AddressSpace* const space_;
  Timeline* const timeline_;
  std::vector<PerDevice> devices_;
  absl::flat_hash_map<CUmemoryPool, std::unique_ptr<Pool>> pools_;
  uint64_t next_handle_ = 0x70000;  // values are never used again
};

}  // namespace weir::sim

#endif  // WEIR_TOOLS_SIMCUDA_POOLS_H_
