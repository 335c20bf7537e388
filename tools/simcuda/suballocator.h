// Suballocator: cuts device memory into allocations of 512 B units, for classic memory and pools.
// Chunks of whole frames are taken from the device as needed. Each allocation has addresses and a
// Store of its own, so that running over its end faults and the checker sees fresh memory.
//
// Two ways of keeping: kReleaseAtOnce gives a chunk back when its last allocation is freed, and a
// request of a frame or more has chunks to itself (classic memory); kKeep keeps chunks until Trim
// (pools). Under the simulator's lock.
#ifndef WEIR_TOOLS_SIMCUDA_SUBALLOCATOR_H_
#define WEIR_TOOLS_SIMCUDA_SUBALLOCATOR_H_

#include <cuda.h>

#include <cstdint>
#include <memory>

#include "absl/container/btree_map.h"
#include "tools/simcuda/address_space.h"
#include "tools/simcuda/physical_memory.h"

namespace weir::sim {

class Suballocator {
 public:
  static constexpr uint64_t kUnit = 512;
  enum class Keep { kReleaseAtOnce, kKeep };

  Suballocator(std::shared_ptr<Arena> arena, int device, AddressSpace* space, Timeline* timeline,
               Keep keep)
      : arena_(std::move(arena)),
        device_(device),
        space_(space),
        timeline_(timeline),
        keep_(keep) {}
  ~Suballocator();
  Suballocator(const Suballocator&) = delete;
  Suballocator& operator=(const Suballocator&) = delete;

  uint64_t reserved_bytes() const { return reserved_bytes_; }
  uint64_t used_bytes() const { return used_bytes_; }  // in units, live allocations only

  // An address range with its store, not yet in the page table; false if memory is short or the
  // chunks would exceed limit bytes (0: no limit).
  bool Allocate(uint64_t bytes, uint64_t limit, CUdeviceptr* base, std::shared_ptr<Store>* store);
  void Free(CUdeviceptr base, uint64_t bytes);
  // Gives wholly free chunks back until at most this many bytes are reserved.
  void Trim(uint64_t keep_bytes);

 private:
  struct Chunk {
    std::shared_ptr<Store> frames;
    uint64_t bytes = 0;
    bool shared = true;
    absl::btree_map<uint64_t, uint64_t> free;  // offset -> bytes, coalesced
    uint64_t free_bytes = 0;
  };
  using Chunks = absl::btree_map<CUdeviceptr, std::unique_ptr<Chunk>>;

  bool TakeFrom(CUdeviceptr chunk_base, Chunk& chunk, uint64_t bytes, CUdeviceptr* base,
                std::shared_ptr<Store>* store);
  Chunks::iterator Release(Chunks::iterator chunk);

  const std::shared_ptr<Arena> arena_;
  const int device_;
  AddressSpace* const space_;
  Timeline* const timeline_;
  const Keep keep_;
  Chunks chunks_;
  uint64_t reserved_bytes_ = 0;
  uint64_t used_bytes_ = 0;
};

}  // namespace weir::sim

#endif  // WEIR_TOOLS_SIMCUDA_SUBALLOCATOR_H_
