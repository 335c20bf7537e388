#include "allocator/pool/passthrough_heap.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "allocator/base/bytes.h"
#include "allocator/base/mutex.h"
#include "allocator/block/size_classes.h"
#include "allocator/pool/inspection.h"
#include "allocator/pool/stats.h"
#include "allocator/pool/stream_heap.h"

namespace weir {

struct PassthroughHeap::Table {
  Mutex mu;
  Pieces pieces ABSL_GUARDED_BY(mu);  // by the address handed out

  static Table& Get() {
    static Table* const table = new Table();
    return *table;
  }
};

namespace {

HeapError FromDriver(const DriverStatus& status) {
  if (status.ok()) return {};
  return HeapError(status.is_out_of_memory() ? WEIR_ERROR_OUT_OF_MEMORY : WEIR_ERROR_DRIVER,
                   status.ToString());
}

// For frees: at process exit the driver has taken everything back already.
HeapError FromFree(const DriverStatus& status) {
  if (status.error_class() == DriverErrorClass::kShuttingDown) return {};
  return FromDriver(status);
}

}  // namespace

PassthroughHeap::PassthroughHeap(std::unique_ptr<DeviceDriver> driver, const HeapOptions& options)
    : driver_(std::move(driver)), table_(Table::Get()) {
  stats_.memory_limit = options.memory_limit;
}

uint64_t PassthroughHeap::Allocate(uint64_t bytes, uint64_t alignment, Stream stream,
                                   HeapError* error, uint64_t padded) {
  bytes = std::max(bytes, padded);
  if (*error = Trim(0); !error->ok()) return 0;
  uint64_t taken = std::max<uint64_t>(bytes, 1);  // the driver refuses 0
  {
    MutexLock lock(table_.mu);
    if (taken > driver_->total_bytes() || taken > stats_.memory_limit ||
        stats_.reserved_bytes > stats_.memory_limit - taken) {
      ++stats_.out_of_memory;
      *error = HeapError(WEIR_ERROR_OUT_OF_MEMORY,
                         absl::StrCat("device ", driver_->ordinal(), ": ", bytes,
                                      " bytes exceed the device's memory or the limit (in use ",
                                      stats_.reserved_bytes, " of ",
                                      std::min(driver_->total_bytes(), stats_.memory_limit), ")"));
      return 0;
    }
  }

  DeviceAddress base = 0;
  DriverStatus status = driver_->AllocateClassic(taken, &base);
  if (status.ok() && !IsAligned(base, alignment)) {
    driver_->FreeClassic(base).IgnoreError();  // unused: nothing to wait for
    taken += alignment;
    status = driver_->AllocateClassic(taken, &base);
  }
  MutexLock lock(table_.mu);
  if (!status.ok()) {
    if (status.is_out_of_memory()) ++stats_.out_of_memory;
    *error = FromDriver(status);
    return 0;
  }
  const uint64_t address = AlignUp(base, alignment);
  // What was freed here before is forgotten: its start may lie inside the new block.
  auto& pieces = table_.pieces;
  pieces.erase(pieces.lower_bound(base), pieces.lower_bound(base + taken));
  pieces[address] = {this, stream, base, bytes, taken, true};
  ++stats_.misses;
  const auto add = [&](auto& s) {
    WEIR_STAT_ADD(s, requested_bytes, bytes);
    WEIR_STAT_ADD(s, allocated_bytes, bytes);
    WEIR_STAT_ADD(s, active_bytes, bytes);
    WEIR_STAT_ADD(s, reserved_bytes, taken);
    WEIR_STAT_ADD(s, allocations, 1);
    WEIR_STAT_ADD(s, active_blocks, 1);
    WEIR_STAT_ADD(s, handles, 1);
  };
  add(stats_);
  add(CountsFor(bytes));
  return address;
}

HeapError PassthroughHeap::Find(uint64_t address, Piece** piece) {
  table_.mu.AssertHeld();
  const auto found = table_.pieces.find(address);
  if (found == table_.pieces.end() || found->second.owner != this) {
    return HeapError(WEIR_ERROR_NOT_OWNED, absl::StrCat("0x", absl::Hex(address),
                                                        " is not the start of a block of Weir"));
  }
  if (!found->second.live) {
    return HeapError(WEIR_ERROR_DOUBLE_FREE,
                     absl::StrCat("the block at 0x", absl::Hex(address), " was freed before"));
  }
  *piece = &found->second;
  return {};
}

HeapError PassthroughHeap::FreeAsync(uint64_t address, Stream stream) {
  bool capturing = false;
  const DriverStatus status = driver_->IsCapturing(stream, &capturing);
  if (HeapError error = FromFree(status); !error.ok()) return error;
  {
    MutexLock lock(table_.mu);
    Piece* piece = nullptr;
    if (HeapError error = Find(address, &piece); !error.ok()) return error;
    piece->live = false;
    const auto subtract = [&](auto& s) {
      WEIR_STAT_SUB(s, requested_bytes, piece->requested);
      WEIR_STAT_SUB(s, allocated_bytes, piece->requested);
      WEIR_STAT_SUB(s, active_bytes, piece->requested);
      WEIR_STAT_SUB(s, reserved_bytes, piece->taken);
      WEIR_STAT_SUB(s, allocations, 1);
      WEIR_STAT_SUB(s, active_blocks, 1);
      WEIR_STAT_SUB(s, handles, 1);
    };
    subtract(stats_);
    subtract(CountsFor(piece->requested));
    put_off_.push_back(piece->base);
    if (capturing) {
      captured_known_ = true;
      captured_ = stream;
    }
  }
  if (!CaptureUnderWay()) return GiveBack();
  MutexLock lock(table_.mu);
  ++stats_.deferred_frees;
  return {};
}

HeapError PassthroughHeap::FreeOrdered(uint64_t address) {
  Stream stream = nullptr;
  {
    MutexLock lock(table_.mu);
    Piece* piece = nullptr;
    if (HeapError error = Find(address, &piece); !error.ok()) return error;
    if (piece->stream != kAnyStream) stream = piece->stream;
  }
  return FreeAsync(address, stream);
}

bool PassthroughHeap::CaptureUnderWay() {
  Stream stream = nullptr;
  {
    MutexLock lock(table_.mu);
    if (!captured_known_) return false;
    stream = captured_;
  }
  bool capturing = false;
  if (driver_->IsCapturing(stream, &capturing).ok() && capturing) return true;
  MutexLock lock(table_.mu);
  captured_known_ = false;
  return false;
}

HeapError PassthroughHeap::GiveBack() {
  std::vector<uint64_t> bases;
  {
    MutexLock lock(table_.mu);
    bases.swap(put_off_);
  }
  DriverStatus status = driver_->SynchronizeContext();
  while (status.ok() && !bases.empty()) {
    status = driver_->FreeClassic(bases.back());
    // What the driver refuses for another reason than a capture would be refused again.
    if (status.error_class() != DriverErrorClass::kCaptureViolation) bases.pop_back();
  }
  MutexLock lock(table_.mu);
  put_off_.insert(put_off_.end(), bases.begin(), bases.end());
  if (status.error_class() != DriverErrorClass::kCaptureViolation) return FromFree(status);
  ++stats_.deferred_frees;
  return {};
}

HeapError PassthroughHeap::StreamDestroyed(Stream stream) {
  MutexLock lock(table_.mu);
  if (captured_ == stream) captured_known_ = false;
  for (auto& [address, piece] : table_.pieces) {
    if (piece.owner == this && piece.stream == stream) piece.stream = nullptr;
  }
  return {};
}

HeapError PassthroughHeap::RecordUse(uint64_t address, Stream /*stream*/) {
  MutexLock lock(table_.mu);
  Piece* piece = nullptr;
  return Find(address, &piece);  // every free waits for all streams
}

uint64_t PassthroughHeap::UsableSize(uint64_t address) {
  MutexLock lock(table_.mu);
  Piece* piece = nullptr;
  return Find(address, &piece).ok() ? piece->requested : 0;
}

bool PassthroughHeap::MayOwn(uint64_t address) {
  MutexLock lock(table_.mu);
  const auto found = table_.pieces.find(address);
  if (found != table_.pieces.end() && found->second.owner == this) return true;
  return FindAround(address) != table_.pieces.end();
}

PassthroughHeap::Pieces::const_iterator PassthroughHeap::FindAround(uint64_t address) const {
  table_.mu.AssertHeld();
  const auto holds = [&](Pieces::const_iterator it) {
    return it->second.owner == this && it->second.live &&
           address - it->second.base < it->second.taken;
  };
  const auto behind = table_.pieces.upper_bound(address);
  if (behind != table_.pieces.end() && holds(behind)) return behind;  // before its aligned begin
  return behind != table_.pieces.begin() && holds(std::prev(behind)) ? std::prev(behind)
                                                                     : table_.pieces.end();
}

HeapError PassthroughHeap::Trim(uint64_t /*keep_bytes*/) {
  {
    MutexLock lock(table_.mu);
    if (put_off_.empty()) return {};
  }
  return CaptureUnderWay() ? HeapError() : GiveBack();
}

HeapError PassthroughHeap::Compact(const weir_compact_options_t& options,
                                   weir_compact_result_t* result) {
  HeapError error = Trim(options.keep_bytes);
  MutexLock lock(table_.mu);
  result->reserved_bytes = stats_.reserved_bytes;
  return error;
}

HeapError PassthroughHeap::MemGetInfo(uint64_t* free_bytes, uint64_t* total_bytes) {
  if (DriverStatus status = driver_->MemGetInfo(free_bytes, total_bytes); !status.ok()) {
    return FromDriver(status);
  }
  MutexLock lock(table_.mu);
  const uint64_t within_limit =
      stats_.memory_limit - std::min(stats_.memory_limit, stats_.reserved_bytes);
  *free_bytes = std::min(*free_bytes, within_limit);
  return {};
}

HeapError PassthroughHeap::WouldFit(uint64_t bytes, Stream /*stream*/, bool* fits,
                                    uint64_t* missing_bytes) {
  uint64_t free_bytes = 0, total_bytes = 0;
  if (HeapError error = MemGetInfo(&free_bytes, &total_bytes); !error.ok()) return error;
  // Frees that a capture has put off count as not free: they may still be forbidden.
  *fits = bytes <= free_bytes && free_bytes > 0;
  *missing_bytes = *fits ? 0 : std::max<uint64_t>(bytes, 1) - free_bytes;
  return {};
}

void PassthroughHeap::SetMemoryLimit(uint64_t bytes) {
  MutexLock lock(table_.mu);
  stats_.memory_limit = bytes;
}

void PassthroughHeap::GetStats(weir_stats_t* stats) {
  MutexLock lock(table_.mu);
  *stats = stats_;
  stats->cached_bytes = stats_.reserved_bytes - stats_.active_bytes;
}

void PassthroughHeap::ResetPeaks() {
  MutexLock lock(table_.mu);
  LowerPeaksOf(&stats_);
  LowerPeaksOf(&small_);
  LowerPeaksOf(&large_);
}

// ---- Inspection ---------------------------------------------------------------------------------

weir_size_stats_t& PassthroughHeap::CountsFor(uint64_t requested) {
  return requested > kMaxSmallArenaBytes ? large_ : small_;
}

void PassthroughHeap::GetSizeStats(weir_size_stats_t* small, weir_size_stats_t* large) {
  MutexLock lock(table_.mu);
  *small = small_;
  *large = large_;
}

void PassthroughHeap::Describe(uint64_t address, const Piece& piece, Inspection* inspection) const {
  weir_segment_info_t segment = {};
  segment.address = piece.base;
  segment.stream = piece.stream;
  segment.device = driver_->ordinal();
  segment.is_large = piece.requested > kMaxSmallArenaBytes ? 1 : 0;
  inspection->BeginSegment(segment);
  // Where the driver aligns less than the caller wanted, there is something before and behind.
  const auto add = [&](uint64_t begin, uint64_t bytes, uint64_t requested, int32_t state) {
    inspection->AddBlock({begin, bytes, requested, piece.stream, state, 0});
  };
  const uint64_t end = address + piece.requested, rest = piece.base + piece.taken - end;
  if (address > piece.base) add(piece.base, address - piece.base, 0, WEIR_BLOCK_FREE);
  add(address, piece.requested, piece.requested, WEIR_BLOCK_ALLOCATED);
  if (rest > 0) add(end, rest, 0, WEIR_BLOCK_FREE);
}

HeapError PassthroughHeap::Inspect(Inspection* inspection) {
  MutexLock lock(table_.mu);
  for (const auto& [address, piece] : table_.pieces) {
    if (piece.live && piece.owner == this) Describe(address, piece, inspection);
  }
  return {};
}

HeapError PassthroughHeap::FindBlock(uint64_t address, weir_block_info_t* block,
                                     weir_segment_info_t* segment) {
  MutexLock lock(table_.mu);
  const auto found = FindAround(address);
  if (found == table_.pieces.end()) {
    return {WEIR_ERROR_NOT_OWNED,
            absl::StrCat("there is no memory of Weir at 0x", absl::Hex(address))};
  }
  Inspection inspection;
  Describe(found->first, found->second, &inspection);
  inspection.Find(address, block, segment);
  return {};
}

std::string PassthroughHeap::Verify() {
  MutexLock lock(table_.mu);
  uint64_t live = 0;
  uint64_t taken = 0;
  for (const auto& [address, piece] : table_.pieces) {
    if (!piece.live || piece.owner != this) continue;
    ++live;
    taken += piece.taken;
  }
  if (live == stats_.allocations && taken == stats_.reserved_bytes) return "";
  return absl::StrCat("passthrough table: ", live, " live blocks of ", taken,
                      " bytes, but the statistics say ", stats_.allocations, " of ",
                      stats_.reserved_bytes);
}

}  // namespace weir
