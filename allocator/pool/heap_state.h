// HeapState: what a DeviceHeap knows, which lock guards what, and what follows from it at once.
//
// Note [Locks]. A small hit takes no lock: the thread's cache is its own (thread_cache.h). heap_mu_
// guards all other bookkeeping and is never held across a driver call: a larger hit waits for
// bookkeeping only. space_mu_ makes misses and trims take turns and is held across driver calls.
// Order: space_mu_ before heap_mu_. While a miss calls the driver, the blocks it is about are kBusy
// and the handles it moves are taken, so hits and frees of other threads go on beside it.
#ifndef WEIR_POOL_HEAP_STATE_H_
#define WEIR_POOL_HEAP_STATE_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/hash/hash.h"
#include "allocator/base/heap_options.h"
#include "allocator/base/mutex.h"
#include "allocator/block/handle_table.h"
#include "allocator/block/heap_records.h"
#include "allocator/driver/device_driver.h"
#include "allocator/pool/call_stack.h"
#include "allocator/pool/capture_pool.h"
#include "allocator/pool/growth_policy.h"
#include "allocator/pool/request.h"
#include "allocator/pool/stream_heap.h"
#include "allocator/pool/thread_caches.h"
#include "allocator/vmm/address_space.h"
#include "weir/weir.h"

namespace weir {

struct OomReport;

// A block when it was exported, and the handles under it that are pinned for that.
struct ExportedBlock {
  uint64_t bytes;
  AddressRange pinned;
};

class HeapState {
 protected:
  HeapState(std::unique_ptr<DeviceDriver> driver, const HeapOptions& options)
      : driver_(std::move(driver)), options_(options), policy_(options) {}
  ~HeapState() = default;

  // What the calling thread means by a stream handle.
  static StreamKey KeyOf(Stream stream) {
    constexpr uintptr_t kLegacy = 1, kPerThread = 2;
    const auto value = reinterpret_cast<uintptr_t>(stream);
    if (value > kPerThread || value == 0) return {stream};
    return value == kLegacy ? StreamKey{nullptr} : StreamKey{stream, ThreadNumber()};
  }

  // ---- Limits, in reserved bytes ----
  uint64_t HardLimit() ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  uint64_t GcLimit() ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);  // UINT64_MAX: none
  uint64_t SpareBytes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  // What may be made new below the limit, `most` at most, in whole granules.
  uint64_t RoomBelow(uint64_t limit, uint64_t most) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);

  // ---- Idle memory ----
  void FlushKept() ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  static bool IsComplete(const Handle& handle);
  // Whether the host can wait for an idle handle's work while a stream of the context is captured.
  static bool CanWaitInCapture(const Handle& handle);
  // Whether its memory, when idle, may go anywhere, be it another address or the driver: a capture
  // pool keeps what it has, and so does who holds the pages.
  bool IsSupply(const Handle& handle) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_) {
    return IsSupply(handle, moves_, pools_lend_);
  }
  static bool IsSupply(const Handle& handle, bool moves, bool pools_lend);

  // ---- device_heap_pins.cc ----
  HeapError PinLocked(AddressRange range) ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_, heap_mu_);
  HeapError UnpinLocked(AddressRange range) ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_, heap_mu_);
  // Each handle once. An error if there is none somewhere in the range.
  HeapError FindHandles(uint64_t address, uint64_t bytes, std::vector<Handle*>* handles)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  const Mapping* MappingAt(uint64_t address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  // device_heap_inspect.cc. What was asked for of what waits for streams, by address.
  using PendingSizes = std::unordered_map<uint64_t, uint64_t>;
  PendingSizes GatherPending() ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  const Block* BlockAround(uint64_t address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  std::string VerifyPins() ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);

  // ---- Segments: device_heap_segments.cc, device_heap_sources.cc ----
  static uint64_t SegmentBytes(const StreamHeap& owner, const Request& request);
  // Records of a segment that the driver or a source has given, or has got back.
  void InstallSegment(Arena* arena, AddressRange range, Block* outer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_, heap_mu_);
  void ForgetSegment(Handle* segment) ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  static bool IsOfSource(const Handle& handle);
  // Null if the pool is no more, or has no source.
  std::shared_ptr<CapturePool> PoolWithSource(uint64_t id) ABSL_LOCKS_EXCLUDED(heap_mu_);
  // Whether a source may have returned that. *outer: see Handle::outer.
  HeapError CheckSegment(AddressRange segment, Block** outer) ABSL_LOCKS_EXCLUDED(heap_mu_);
  // Calls sources: without any lock.
  void GiveBack(const LeavingSegment& segment) const ABSL_LOCKS_EXCLUDED(space_mu_, heap_mu_);
  void GiveBackToSources() ABSL_LOCKS_EXCLUDED(heap_mu_);
  std::shared_ptr<CapturePool> FindPool(uint64_t id, HeapError* error)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);

  using StreamList = absl::InlinedVector<StreamHeap*, 2>;

  const std::unique_ptr<DeviceDriver> driver_;
  const HeapOptions options_;
  uint64_t granule_ = 0;
  uint64_t reservation_begin_ = 0;  // 0, 0 without VMM
  uint64_t reservation_bytes_ = 0;
  std::atomic<bool> has_segments_{false};  // some memory lies outside the reservation

  Mutex space_mu_ ABSL_ACQUIRED_BEFORE(heap_mu_);
  AddressSpace addresses_ ABSL_GUARDED_BY(space_mu_);
  EventPool events_ ABSL_GUARDED_BY(space_mu_);
  std::optional<bool> context_is_captured_ ABSL_GUARDED_BY(space_mu_);  // unset: not asked yet

  // Tables of std: Abseil's are damaged when host memory runs out in an insertion.
  Mutex heap_mu_;
  HeapRecords records_ ABSL_GUARDED_BY(heap_mu_);
  HandleTable handles_ ABSL_GUARDED_BY(heap_mu_);
  GrowthPolicy policy_ ABSL_GUARDED_BY(heap_mu_);
  std::vector<std::unique_ptr<StreamHeap>> streams_ ABSL_GUARDED_BY(heap_mu_);
  std::unordered_map<StreamKey, StreamHeap*, absl::Hash<StreamKey>> by_key_
      ABSL_GUARDED_BY(heap_mu_);
  StreamHeap* last_stream_ ABSL_GUARDED_BY(heap_mu_) = nullptr;  // that FindStream found
  std::vector<ThreadCache*> caches_ ABSL_GUARDED_BY(heap_mu_);
  std::vector<std::shared_ptr<CapturePool>> pools_ ABSL_GUARDED_BY(heap_mu_);  // not released
  uint64_t newest_pool_ ABSL_GUARDED_BY(heap_mu_) = 0;                         // the largest id
  std::vector<LeavingSegment> leaving_ ABSL_GUARDED_BY(heap_mu_);
  uint64_t source_bytes_ ABSL_GUARDED_BY(heap_mu_) = 0;  // of reserved bytes, those of sources
  // The last rung of a miss: what pools with use_on_oom have idle is everybody's supply.
  bool pools_lend_ ABSL_GUARDED_BY(heap_mu_) = false;
  std::shared_ptr<const Routes> routes_ ABSL_GUARDED_BY(heap_mu_) = std::make_shared<Routes>();
  std::atomic<bool> has_routes_{false};
  bool has_spares_ ABSL_GUARDED_BY(heap_mu_) = false;  // that were made in advance, perhaps
  std::unordered_map<uint64_t, StreamList> uses_ ABSL_GUARDED_BY(heap_mu_);
  // By address and bytes, how often.
  std::unordered_map<std::pair<uint64_t, uint64_t>, uint64_t,
                     absl::Hash<std::pair<uint64_t, uint64_t>>>
      pinned_ ABSL_GUARDED_BY(heap_mu_);
  // device_heap_share.cc: exported blocks by their begin, and imported ranges.
  std::multimap<uint64_t, ExportedBlock> exports_ ABSL_GUARDED_BY(heap_mu_);
  std::map<uint64_t, uint64_t> imports_ ABSL_GUARDED_BY(space_mu_);  // begin, bytes
  // False: nothing that is mapped is unmapped or mapped elsewhere, for nobody knows who holds it.
  // Set under both locks by whoever may change mappings.
  bool moves_ ABSL_GUARDED_BY(heap_mu_) = true;
  // record_stacks: by address, of what callers hold.
  std::unordered_map<uint64_t, CallStack> stacks_ ABSL_GUARDED_BY(heap_mu_);
  std::shared_ptr<const OomReport> last_report_ ABSL_GUARDED_BY(heap_mu_);
  weir_stats_t stats_ ABSL_GUARDED_BY(heap_mu_){};
};

}  // namespace weir

#endif  // WEIR_POOL_HEAP_STATE_H_
