// PassthroughHeap: the stand-in for DeviceHeap in mode:passthrough. Every request is one cuMemAlloc
// of exactly the bytes asked for, so that memory checkers see each block's bounds; every free waits
// for the device's work and gives the memory back. It keeps only a table of what is live.
//
// The methods mean what DeviceHeap's mean. Differences: frees wait, streams do not matter, nothing
// is cached. A free that a stream capture forbids is put off until a later call can do it.
#ifndef WEIR_POOL_PASSTHROUGH_HEAP_H_
#define WEIR_POOL_PASSTHROUGH_HEAP_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "allocator/base/heap_options.h"
#include "allocator/base/mutex.h"
#include "allocator/driver/device_driver.h"
#include "allocator/pool/heap_error.h"
#include "weir/weir.h"

namespace weir {

class PassthroughHeap {
 public:
  PassthroughHeap(std::unique_ptr<DeviceDriver> driver, const HeapOptions& options);

  const DeviceDriver& driver() const { return *driver_; }

  uint64_t Allocate(uint64_t bytes, uint64_t alignment, Stream stream, HeapError* error);
  HeapError Free(uint64_t address) { return FreeAsync(address, nullptr); }
  HeapError FreeAsync(uint64_t address, Stream stream);
  HeapError RecordUse(uint64_t address, Stream stream);
  HeapError StreamDestroyed(Stream) { return {}; }
  uint64_t UsableSize(uint64_t address);
  bool MayOwn(uint64_t address);

  HeapError EmptyCache() { return Trim(0); }
  HeapError Trim(uint64_t keep_bytes);
  HeapError MemGetInfo(uint64_t* free_bytes, uint64_t* total_bytes);
  void SetMemoryLimit(uint64_t bytes);
  void GetStats(weir_stats_t* stats);
  void ResetPeaks();
  std::string Verify();

 private:
  struct Piece {
    uint64_t base = 0;  // what the driver gave, at or below the address handed out
    uint64_t requested = 0;
    uint64_t taken = 0;  // asked of the driver
    bool live = false;   // false: freed, and remembered so that a second free is told apart
  };

  // The live piece at an address, or why there is none.
  HeapError Find(uint64_t address, Piece** piece) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Waits for the device's work and gives memory back; puts it off if a capture forbids that.
  HeapError GiveBack(std::vector<uint64_t> bases) ABSL_LOCKS_EXCLUDED(mu_);
  std::vector<uint64_t> TakePutOff() ABSL_LOCKS_EXCLUDED(mu_);

  const std::unique_ptr<DeviceDriver> driver_;
  Mutex mu_;  // never held across a driver call
  absl::flat_hash_map<uint64_t, Piece> pieces_ ABSL_GUARDED_BY(mu_);  // by address handed out
  std::vector<uint64_t> put_off_ ABSL_GUARDED_BY(mu_);  // bases that wait for a capture
  weir_stats_t stats_ ABSL_GUARDED_BY(mu_){};
};

}  // namespace weir

#endif  // WEIR_POOL_PASSTHROUGH_HEAP_H_
