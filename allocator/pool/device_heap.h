// DeviceHeap: all memory of one device. The whole allocator, joined.
//
//   hit   thread_cache.h            no lock that threads share, no driver call
//         device_heap.cc            heap lock, no driver call: larger blocks, and what no cache has
//         device_heap_cache.cc      how caches are filled and emptied
//   miss  device_heap_miss.cc       space lock; the rungs from "what is complete" to out of memory
//         device_heap_map.cc        how a rung makes memory: window, driver calls, commit
//         device_heap_supply.cc     which idle memory it may take
//         device_heap_boundary.cc   a block that begins and ends in granules of others
//         device_heap_borrow.cc     memory that another stream has left
//         device_heap_segments.cc   without mapping
//         device_heap_mesh.cc       partly used granules, merged; compaction
//         device_heap_ladder.cc     callbacks, and waiting for no more than is needed
//         device_heap_report.cc     what is told when nothing has helped
//   ask   device_heap_would_fit.cc  whether a request would succeed, without trying
//         device_heap_inspect.cc    all blocks and segments
//   trim  device_heap_trim.cc       giving memory back, limits, information
//         device_heap_release.cc    what is given back of itself, and made in advance
//         device_heap_aliases.cc    further addresses of memory, unmapped
//   who   device_heap_streams.cc, device_heap_pools.cc: streams, capture pools and routes to them
//         device_heap_pins.cc       who else holds the physical pages
//
// What it knows, and which lock guards what: heap_state.h. What it counts: heap_counts.h.
#ifndef WEIR_POOL_DEVICE_HEAP_H_
#define WEIR_POOL_DEVICE_HEAP_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "allocator/base/heap_options.h"
#include "allocator/base/mutex.h"
#include "allocator/block/handle_table.h"
#include "allocator/block/heap_records.h"
#include "allocator/driver/device_driver.h"
#include "allocator/pool/capture_pool.h"
#include "allocator/pool/context_replay.h"
#include "allocator/pool/found.h"
#include "allocator/pool/growth_policy.h"
#include "allocator/pool/heap_counts.h"
#include "allocator/pool/heap_error.h"
#include "allocator/pool/ladder.h"
#include "allocator/pool/oom_report.h"
#include "allocator/pool/request.h"
#include "allocator/pool/stream_heap.h"
#include "allocator/pool/tags.h"
#include "allocator/pool/thread_caches.h"
#include "allocator/vmm/address_space.h"
#include "allocator/vmm/map_plan.h"
#include "weir/weir.h"

namespace weir {

class Inspection;

class DeviceHeap : private HeapCounts {
 public:
  // Reserves address space if the device can map memory. Null with an error if the driver fails.
  static std::unique_ptr<DeviceHeap> Create(std::unique_ptr<DeviceDriver> driver,
                                            const HeapOptions& options, HeapError* error);
  // Makes no driver call: memory is given back by EmptyCache, or by the driver at exit.
  ~DeviceHeap();
  DeviceHeap(const DeviceHeap&) = delete;
  DeviceHeap& operator=(const DeviceHeap&) = delete;

  const DeviceDriver& driver() const { return *driver_; }

  // The functions of weir.h, for this device. Pointers are device addresses.
  uint64_t Allocate(uint64_t bytes, uint64_t align, Stream s, HeapError* error, uint64_t padded = 0);
  HeapError Free(uint64_t address) { return FreeAsync(address, kAnyStream); }
  HeapError FreeAsync(uint64_t address, Stream stream);
  HeapError FreeOrdered(uint64_t address);
  HeapError RecordUse(uint64_t address, Stream stream);
  HeapError StreamDestroyed(Stream stream);
  uint64_t UsableSize(uint64_t address);
  // Whether a pointer can be one of this heap's. A pointer for which no heap says yes is foreign.
  bool MayOwn(uint64_t address) {
    return address - reservation_begin_ < reservation_bytes_ ||
           (has_segments_.load(std::memory_order_relaxed) && OwnsSegmentAt(address));
  }

  HeapError EmptyCache() { return Trim(0); }
  HeapError Trim(uint64_t keep_bytes);
  HeapError Compact(const weir_compact_options_t& options, weir_compact_result_t* result);
  HeapError MemGetInfo(uint64_t* free_bytes, uint64_t* total_bytes);
  HeapError WouldFit(uint64_t bytes, Stream stream, bool* fits, uint64_t* missing_bytes);
  void SetMemoryLimit(uint64_t bytes);
  HeapError Preallocate(uint64_t bytes);
  void GetStats(weir_stats_t* stats);
  void GetSizeStats(weir_size_stats_t* small, weir_size_stats_t* large);
  void ResetPeaks();
  // What weir/inspect.h shows; block and segment may be null.
  HeapError Inspect(Inspection* inspection);
  HeapError FindBlock(uint64_t address, weir_block_info_t* block, weir_segment_info_t* segment);
  // Of the last request that failed for want of memory; null if there was none.
  std::shared_ptr<const OomReport> LastReport();
  // Empty, or the first broken invariant.
  std::string Verify();

  // Capture pools, as in weir.h; the filter of a route is null for the calling thread.
  HeapError CreatePool(uint64_t id, const weir_pool_options_t& options = {});
  HeapError RetainPool(uint64_t id);
  HeapError BeginRoute(uint64_t id, RouteFilter filter, void* user);
  HeapError EndRoute(uint64_t id);
  HeapError ReleasePool(uint64_t id);
  HeapError SetPoolLimit(uint64_t id, uint64_t bytes);
  HeapError SetPoolUseOnOom(uint64_t id, bool value);
  HeapError SetPoolNoSplit(uint64_t id);
  HeapError EmptyPool(uint64_t id);

  // Pins the handles under a range (device_heap_pins.cc); every pin is undone by an UnpinRange of
  // the same range. WEIR_ERROR_NOT_OWNED, and nothing changed, if not all of it is mapped.
  HeapError PinRange(uint64_t address, uint64_t bytes) ABSL_LOCKS_EXCLUDED(space_mu_, heap_mu_);
  HeapError UnpinRange(uint64_t address, uint64_t bytes) ABSL_LOCKS_EXCLUDED(space_mu_, heap_mu_);

  class Sharing;      // device_heap_share.h: other devices and processes
  class PoolRestore;  // device_heap_restore.h: earlier states of a pool

  // An error inside an observer of remaps: what takes the space lock must begin with it.
  static HeapError CheckNotObserving();

  // Takes back what is in a cache of a thread that is ending.
  void RetireCache(ThreadCache* cache);

 private:
  struct Change;  // a mapping under way; change.h
  class FitView;  // device_heap_would_fit.cc
  using Timelines = absl::InlinedVector<StreamTimeline*, 4>;

  DeviceHeap(std::unique_ptr<DeviceDriver> driver, const HeapOptions& options);

  // ---- device_heap_cache.cc ----
  // The calling thread's cache for the stream, or null: caches are off, or memory for any stream.
  ThreadCache* CacheOf(StreamHeap* owner) ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  uint64_t AllocateThrough(ThreadCache* cache, const Request& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  // True if the cache has taken the block; else nothing changed.
  bool FreeThrough(ThreadCache* cache, const Found& found, uint64_t address)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  // A cache of the calling thread whose room may serve for what the heap itself hands out, or null.
  ThreadCache* OwnCache() ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  // Puts what a cache held back where it came from.
  void Uncache(Block* block, uint64_t address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  // Returns the bytes that were in them.
  uint64_t FlushCaches() ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  // Of one cache: all that is in it and its room. The thread is stopped or the calling one.
  void Flush(ThreadCache* cache) ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  // Empties the caches of a stream that is gone, or of all streams with nullptr, for ever.
  void UnbindCaches(const StreamHeap* owner) ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);

  // ---- device_heap_streams.cc ----
  StreamHeap* FindStream(StreamKey key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  // Finds or makes the stream's heap; asks the driver for the device of a stream seen first.
  StreamHeap* StreamFor(StreamKey key, HeapError* error) ABSL_LOCKS_EXCLUDED(heap_mu_);
  // Deletes what is left of streams that are gone and whose memory is.
  void DeleteUnusedStreams() ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_, heap_mu_);
  // Records markers and releases what is complete, unless a miss is under way.
  void TryCompleteDeferred() ABSL_LOCKS_EXCLUDED(heap_mu_) ABSL_NO_THREAD_SAFETY_ANALYSIS;
  // Records markers on streams that have freed much since the last one.
  void MarkFrees() ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_);

  // ---- device_heap_pools.cc ----
  // The pool to which the calling thread's requests for the stream are routed; 0: none. Asks
  // filters, so without a lock.
  uint64_t PoolOf(Stream stream) ABSL_LOCKS_EXCLUDED(heap_mu_);
  HeapError ReleasePoolLocked(uint64_t id) ABSL_LOCKS_EXCLUDED(space_mu_, heap_mu_);
  // The streams of a pool that was released become like streams that were destroyed.
  void MakeOrdinary(uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_, heap_mu_);
  // Records the context markers that memory needs, if no capture forbids it now.
  void CloseContextEpochs() ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_);
  void SetRoutes(Routes routes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  // Whether requests of a thread may be routed to a pool, so that its caches must not serve them.
  bool MayBeRouted(uint64_t thread) ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);

  // ---- device_heap_sources.cc ----
  // Climb for a pool with a source, which is called without locks.
  uint64_t ClimbToSource(const std::shared_ptr<CapturePool>& pool, StreamKey key, Request* request,
                         Ladder* ladder, HeapError* error) ABSL_LOCKS_EXCLUDED(space_mu_, heap_mu_);
  // Before the source is asked: what has become free, or how much may be asked for.
  uint64_t PrepareSegment(const std::shared_ptr<CapturePool>& pool, StreamKey key,
                          const Request& request, bool last, Ladder* ladder, SourceStep* step,
                          HeapError* error) ABSL_LOCKS_EXCLUDED(space_mu_, heap_mu_);
  // Serves the request from what the source has given.
  uint64_t TakeSegment(const std::shared_ptr<CapturePool>& pool, StreamKey key, Request* request,
                       AddressRange segment, Ladder* ladder, HeapError* error)
      ABSL_LOCKS_EXCLUDED(space_mu_, heap_mu_);
  // Releases what is idle in the streams that are meant, as ReleaseIdle.
  DriverStatus ReleaseIdleOf(const std::function<bool(const StreamHeap&)>& is_meant, bool may_wait)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_);
  // The same for pools that were released and leave nothing behind.
  DriverStatus ReleaseLeaving(bool may_wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_);
  // And gives it back. False if there was nothing.
  bool GiveBackLeaving(bool may_wait) ABSL_LOCKS_EXCLUDED(space_mu_, heap_mu_);
  uint64_t TakeFromPools(StreamHeap* owner, const Request& request, Rung* rung,
                         DriverStatus* status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_);

  // ---- device_heap.cc ----
  uint64_t TryAllocate(StreamHeap* owner, const Request& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  // A large request becomes part of its stream's history, once.
  void NoteContext(StreamHeap* owner, Request* request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  // Turns a live block into what the request is for; counts it.
  uint64_t Finish(StreamHeap* owner, const Request& request, Block* block)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  uint64_t TakeObject(StreamHeap* owner, const Request& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  Found Find(uint64_t address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  // Why Find has found nothing.
  HeapError ExplainNotFound(uint64_t address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  // The free takes effect in the order of `user` and behind recorded uses: at once if there are
  // none and the user is the owner. *record_marker: enough waits for one.
  void FreeHeld(const Found& found, uint64_t address, StreamHeap* user, bool* record_marker)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  void FreeBehind(const Found& found, uint64_t address, StreamHeap* user, bool* record_marker)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  // May throw std::bad_alloc, and has done nothing then.
  void DeferBehind(const Timelines& waits, uint64_t address, uint64_t bytes, uint64_t requested)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  // A deferred free takes effect: the memory may be reused in its owner's order.
  void Release(const Found& found) ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  // The same for what is not counted as active any more. Keep: as the arena's last freed block.
  void PutBack(const Found& found, bool keep) ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);

  // ---- device_heap_ladder.cc ----
  // Climbs, and asks the program's callbacks before it gives up.
  uint64_t AllocateMiss(StreamKey key, Request request, HeapError* error)
      ABSL_LOCKS_EXCLUDED(space_mu_, heap_mu_);
  uint64_t AskCallbacks(StreamKey key, Request* request, Ladder* ladder, HeapError* error)
      ABSL_LOCKS_EXCLUDED(space_mu_, heap_mu_);
  uint64_t UsableBytes(const Ladder& ladder) ABSL_LOCKS_EXCLUDED(heap_mu_);  // free anywhere
  // What follows when a rung has served a miss. Returns the address.
  uint64_t Served(LadderRung rung, const Ladder& ladder, uint64_t address)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_) ABSL_LOCKS_EXCLUDED(heap_mu_);
  void CountServed(LadderRung rung, const Ladder& ladder) ABSL_LOCKS_EXCLUDED(heap_mu_);
  // Waits for the work that the oldest deferred free waits for, of those that were there when the
  // miss began (`newest` counts them). What cannot be waited for is added to `refused`. False if
  // nothing is left to wait for.
  bool WaitForOldest(uint64_t newest, std::vector<const StreamTimeline*>* refused,
                     DriverStatus* status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_);
  // Finds out what is missing, with what the driver has and what is captured in the ladder.
  void CountMissing(StreamHeap* owner, const Request& request, const Rung& rung, Ladder* ladder)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_, heap_mu_);
  // What a stream's pool may still take. UINT64_MAX without a limit.
  uint64_t PoolRoom(const StreamHeap* owner) ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);

  // ---- device_heap_miss.cc ----
  // All rungs but the callbacks. WEIR_ERROR_OUT_OF_MEMORY without a text, and what is missing in
  // the ladder, if the bytes are not there.
  uint64_t Climb(StreamKey key, Request* noted, Ladder* ladder, HeapError* error)
      ABSL_LOCKS_EXCLUDED(space_mu_, heap_mu_);
  // A rung with mapping or, where that is off, with segments. If the driver has less memory than
  // the limits allow, the rung is tried again without relying on it.
  uint64_t MakeAndAllocate(StreamHeap* owner, const Request& request, Rung* rung,
                           DriverStatus* status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_);
  // Records and polls markers that deferred frees wait for, and releases what is complete. With
  // `wait` it blocks until all of them are.
  DriverStatus CompleteDeferred(bool wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_);
  DriverStatus CompleteOnce(bool wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_);
  void ReleaseComplete() ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  // Closes and polls the timelines that idle handles wait for.
  DriverStatus ProveIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_);
  // Whether a stream of the context is known to be under capture: then markers of the context and
  // waiting for it are out of the question. Asks the driver once for each miss or trim.
  bool ContextIsCaptured() ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_);
  // Whether the status says that the stream is gone without a weir_stream_destroyed; its memory is
  // then proved complete through the context.
  bool LostItsStream(StreamTimeline* timeline, const DriverStatus& status);
  // StreamTimeline::Close and Wait, where a capture allows them.
  DriverStatus CloseEpoch(StreamTimeline* timeline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_);
  // Learns what is complete, after closing the epoch if asked to.
  DriverStatus Ask(StreamTimeline* timeline, bool close) ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_);
  DriverStatus WaitFor(StreamTimeline* timeline, Epoch epoch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_);
  HeapError DriverFailure(const DriverStatus& status) const;
  std::vector<StreamHeap*> Streams() ABSL_LOCKS_EXCLUDED(heap_mu_);

  // ---- device_heap_report.cc ----
  // Counts a failure and keeps its report; the error has the short text.
  HeapError OutOfMemory(StreamKey key, const Request& request, const Ladder& ladder)
      ABSL_LOCKS_EXCLUDED(heap_mu_);
  void GatherReport(StreamKey key, const Request& request, OomReport* report)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  void GatherFree(const Request& request, OomReport* report)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  void GatherHolders(OomReport* report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  // Remembers the call stack of a request if the option record_stacks says so.
  void RecordStack(uint64_t address, uint64_t bytes) ABSL_LOCKS_EXCLUDED(heap_mu_);

  // ---- device_heap_borrow.cc ----
  // Free memory of another stream that shares its granules with blocks in use, or 0. The host waits
  // only if it may.
  uint64_t Borrow(StreamHeap* taker, const Request& request, bool may_wait, DriverStatus* status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_);
  uint64_t BorrowFrom(Arena* arena, StreamHeap* taker, const Request& request, BorrowOrder order,
                      DriverStatus* status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_);
  // Whether what was freed up to the epoch comes before the taker's work from now on.
  bool IsOrdered(StreamHeap* lender, Epoch epoch, StreamHeap* taker, BorrowOrder order,
                 DriverStatus* status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_);
  void ReturnBorrowed(Block* block, StreamHeap* borrower) ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  // Puts back what borrowers have returned and do not use any more.
  void TakeReturned() ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);

  // ---- device_heap_map.cc ----
  uint64_t MapAndAllocate(StreamHeap* owner, const Request& request, const Rung& rung,
                          DriverStatus* status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_);
  Planned PlanLocked(const Request& request, const Rung& rung, const Known& known, Change* change)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  bool MayStitch(const Arena& arena, const Request& request) const;
  Planned PlanWindow(const Request& request, const Rung& rung, const Known& known,
                     const Window& window, bool stitch, Change* change)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  // device_heap_boundary.cc
  Planned PlanBoundary(const Request& request, const Rung& rung, const Known& known, Change* change)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  // Idle memory for what of `missing` bytes may not be made new; none is mapped in `keep`.
  Planned ChooseSupply(const StreamHeap* owner, AddressRange keep, uint64_t missing,
                       const Rung& rung, const Known& known, bool stitch,
                       std::vector<Handle*>* victims) ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  static bool IsOf(const StreamHeap* owner, const Handle& handle);
  // The change takes them; those of the stitched stream stay mapped where they are.
  static void TakeVictims(const std::vector<Handle*>& victims, const StreamHeap* stitched,
                          Change* change);
  // Makes the records of a change and makes busy what it is about. May throw std::bad_alloc, and
  // has done nothing then.
  void Mark(Change* change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  DriverStatus Carry(Change* change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_);
  Block* Commit(Change* change, bool success) ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  DriverStatus CarryAndCommit(Change* change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_);
  // Gives chunks that the stream's arenas, or any arenas, do not need back to the reservation.
  void ReturnAddresses(StreamHeap* stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_, heap_mu_);
  void CollectAddresses() ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_, heap_mu_);
  bool TakeAddresses(Arena* arena, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_);
  // False if the device's reservation is used up.
  bool AddAddresses(Arena* arena, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_);
  uint64_t SegmentAndAllocate(StreamHeap* owner, const Request& request, const Rung& rung,
                              DriverStatus* status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_);

  // ---- device_heap_mesh.cc ----
  struct MergeStep;
  // Merges up to `most` partly used granules into others, until the driver's clock says `until_ns`.
  // Returns how many became free. Waits for all work of the device.
  uint64_t MergeGranules(uint64_t most, uint64_t until_ns, DriverStatus* status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_);
  std::vector<MergeStep> PlanMergesLocked(uint64_t most) ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  DriverStatus CopyAndRemap(std::vector<MergeStep>* steps, uint64_t until_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_);
  uint64_t CommitMerges(std::vector<MergeStep>* steps) ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  bool CommitMerge(MergeStep* step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  void WithdrawLost(const MergeStep& step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);

  // ---- device_heap_pins.cc ----
  // Whether the option, and the libraries of the process, allow to change what is mapped.
  bool MayMove() const;
  // Sets moves_ by it.
  void LookForHolders() ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_) ABSL_LOCKS_EXCLUDED(heap_mu_);

  // ---- device_heap_aliases.cc ----
  // Unmaps all further addresses of memory, in use or not. Waits for work that used them.
  DriverStatus DropAliases() ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_);
  // Unmaps further addresses of idle memory, the longest unused first, while there are more than
  // keep_bytes of them.
  DriverStatus TrimAliases(uint64_t keep_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_);
  // Returns how many bytes more it would choose if their work were complete.
  uint64_t ChooseAliases(uint64_t keep_bytes, std::vector<Mapping*>* chosen)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  // Unmaps guest mappings whose last block was freed.
  DriverStatus UnmapDeadGuests() ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_);
  // Mark for a change that only unmaps, under the lock under which its mappings were chosen: a hit
  // of another thread could use them otherwise. Then Unmap carries it out.
  void MarkUnmapped(Change* change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
  DriverStatus Unmap(Change* change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_);

  // ---- device_heap_trim.cc ----
  bool OwnsSegmentAt(uint64_t address) ABSL_LOCKS_EXCLUDED(heap_mu_);
  // Releases idle handles, highest address first, until reserved <= keep_bytes. Waits for their
  // work, or with may_wait = false leaves those whose work is not known to be complete. Begins none
  // at or after until_ns of the driver's clock.
  DriverStatus ReleaseIdle(uint64_t keep_bytes, bool may_wait, uint64_t until_ns = UINT64_MAX)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_);
  DriverStatus ReleaseHandle(Handle* handle) ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_);
  DriverStatus ReleaseSegment(Handle* segment) ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_);

  // ---- device_heap_release.cc ----
  // Makes spares until so many bytes are reserved: all of them or none.
  HeapError MakeSpares(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_);
  // What release_threshold, idle_decay and gc_threshold say. Never waits; what fails stays.
  void ReleaseByPolicy() ABSL_EXCLUSIVE_LOCKS_REQUIRED(space_mu_) ABSL_LOCKS_EXCLUDED(heap_mu_);
  // What ReleaseByPolicy releases, and whether there would be more if its work were complete.
  std::vector<Handle*> ChooseByPolicy(uint64_t now_ns, bool* needs_proof)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_mu_);
};

}  // namespace weir

#endif  // WEIR_POOL_DEVICE_HEAP_H_
