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

#include "absl/container/btree_map.h"
#include "allocator/base/heap_options.h"
#include "allocator/driver/device_driver.h"
#include "allocator/pool/heap_error.h"
#include "weir/inspect.h"
#include "weir/weir.h"

namespace weir {

class Inspection;

class PassthroughHeap {
 public:
  // What was handed out, on all devices: an address that one device has given back the driver may
  // give out next on another. Leaked, like all that lives as long as the process.
  struct Table;

  PassthroughHeap(std::unique_ptr<DeviceDriver> driver, const HeapOptions& options);

  const DeviceDriver& driver() const { return *driver_; }

  uint64_t Allocate(uint64_t bytes, uint64_t alignment, Stream stream, HeapError* error,
                    uint64_t padded = 0);  // counts padding as requested
  HeapError Free(uint64_t address) { return FreeAsync(address, nullptr); }
  HeapError FreeAsync(uint64_t address, Stream stream);
  HeapError FreeOrdered(uint64_t address);
  HeapError RecordUse(uint64_t address, Stream stream);
  HeapError StreamDestroyed(Stream stream);
  uint64_t UsableSize(uint64_t address);
  bool MayOwn(uint64_t address);

  HeapError EmptyCache() { return Trim(0); }
  HeapError Trim(uint64_t keep_bytes);
  // There is nothing to merge, and nothing idle.
  HeapError Compact(const weir_compact_options_t& options, weir_compact_result_t* result);
  HeapError MemGetInfo(uint64_t* free_bytes, uint64_t* total_bytes);
  HeapError WouldFit(uint64_t bytes, Stream stream, bool* fits, uint64_t* missing_bytes);
  void SetMemoryLimit(uint64_t bytes);
  void GetStats(weir_stats_t* stats);
  void GetSizeStats(weir_size_stats_t* small, weir_size_stats_t* large);
  // Each block is a segment. Memory that a capture keeps from being freed is not shown.
  HeapError Inspect(Inspection* inspection);
  HeapError FindBlock(uint64_t address, weir_block_info_t* block, weir_segment_info_t* segment);
  void ResetPeaks();
  std::string Verify();

 private:
  struct Piece {
    PassthroughHeap* owner = nullptr;
    Stream stream = nullptr;
    uint64_t base = 0;  // what the driver gave, at or below the address handed out
    uint64_t requested = 0;
    uint64_t taken = 0;  // asked of the driver
    bool live = false;   // false: freed, and remembered so that a second free is told apart
  };
  using Pieces = absl::btree_map<uint64_t, Piece>;  // by the address handed out

  // The live piece at an address, or why there is none.
  HeapError Find(uint64_t address, Piece** piece);
  weir_size_stats_t& CountsFor(uint64_t requested);
  void Describe(uint64_t address, const Piece& piece, Inspection* inspection) const;
  // The live piece that contains the address, or the table's end.
  Pieces::const_iterator FindAround(uint64_t address) const;
  // Whether a stream that was being captured at an earlier free still is.
  bool CaptureUnderWay();
  // Waits for the device's work and gives back what was freed; puts it off if a capture forbids
  // that.
  HeapError GiveBack();

  const std::unique_ptr<DeviceDriver> driver_;
  Table& table_;
  // Guarded by the table's lock, which is never held across a driver call.
  std::vector<uint64_t> put_off_;  // bases to give back
  bool captured_known_ = false;    // whether captured_ was being captured when last seen
  Stream captured_ = nullptr;
  weir_stats_t stats_{};
  weir_size_stats_t small_{}, large_{};
};

}  // namespace weir

#endif  // WEIR_POOL_PASSTHROUGH_HEAP_H_
