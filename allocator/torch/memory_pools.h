// MemoryPools: PyTorch's pools (MemPool, CUDA graphs), each a pool of Weir.
//
// PyTorch names a pool by an id of its own and counts its users; a pool that nobody uses any more
// stays known until its last block is gone, for snapshots and for memory with an allocator of its
// own, which must live until it has got back all it gave.
#ifndef WEIR_TORCH_MEMORY_POOLS_H_
#define WEIR_TORCH_MEMORY_POOLS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "torch_names.h"
#include "weir/inspect.h"
#include "weir/pools.h"

namespace weir::torch_plugin {

class MemoryPools {
 public:
  using Filter = std::function<bool(cudaStream_t)>;

  // Makes the pool if there is none with that id. `source` (may be null) is what its memory comes
  // from.
  void Retain(DeviceIndex device, MempoolId_t id, std::shared_ptr<CUDAAllocator> source);
  void Release(DeviceIndex device, MempoolId_t id);
  int UseCount(DeviceIndex device, MempoolId_t id);
  // Requests for streams that the filter picks go to the pool until End.
  void Begin(DeviceIndex device, MempoolId_t id, Filter filter);
  void End(DeviceIndex device, MempoolId_t id);
  void SetUseOnOom(DeviceIndex device, MempoolId_t id, bool value);
  void SetNoSplit(DeviceIndex device, MempoolId_t id);
  // Gives idle memory back, unless the pool is in use.
  void Empty(DeviceIndex device, MempoolId_t id);

  // Whether a pool may hold segments that can only be given back whole.
  bool may_have_segments() const { return may_have_segments_.load(std::memory_order_relaxed); }

  // 0 if there is no such pool.
  weir_pool_t Find(DeviceIndex device, MempoolId_t id);
  // {0, 0} for 0, and for a pool that is none of PyTorch's.
  MempoolId_t IdOf(weir_pool_t pool);
  MempoolId_t IdOfBlock(const void* ptr);
  // The blocks in use.
  static std::vector<weir_block_info_t> LiveBlocks(DeviceIndex device, weir_pool_t pool);

 private:
  // Where the memory of a pool comes from.
  struct Source {
    std::shared_ptr<CUDAAllocator> allocator;
    DeviceIndex device;
    MempoolId_t id;
  };
  // A request that has begun may still ask a filter after End, so its place is kept with the pool
  // and used again by the next one.
  struct Route {
    std::atomic<std::shared_ptr<const Filter>> filter;
  };
  struct Pool {
    weir_pool_t pool = 0;
    int users = 0;
    std::unique_ptr<Source> source;
    std::vector<std::unique_ptr<Route>> routes;
    std::vector<Route*> active;  // the newest last
  };
  using Key = std::pair<DeviceIndex, MempoolId_t>;

  static int Ask(weir_stream_t stream, void* route);
  static void* AllocateFrom(size_t bytes, int device, weir_stream_t stream, void* source);
  static void DeallocateTo(void* ptr, size_t bytes, int device, weir_stream_t stream, void* source);
  // mu_ held. Throws if there is none.
  Pool& Get(DeviceIndex device, MempoolId_t id);

  std::atomic<bool> may_have_segments_{false};
  std::mutex mu_;  // not held while Weir is asked for memory
  std::map<Key, Pool> pools_;
  std::vector<Pool> retired_;  // whose id was used again; kept, because they may still be asked
  std::unordered_map<weir_pool_t, MempoolId_t> ids_;
};

}  // namespace weir::torch_plugin

#endif  // WEIR_TORCH_MEMORY_POOLS_H_
