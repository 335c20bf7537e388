// DeviceHeap: what is told about a request that failed, and the call stacks it is told with.
//
// A report is gathered under the heap lock right after the failure and kept until the next one; it
// walks all blocks, so a failure costs some milliseconds on a large heap.
#include <algorithm>
#include <array>
#include <map>
#include <new>

#include "absl/strings/str_cat.h"
#include "allocator/pool/device_heap.h"

namespace weir {
namespace {

using Reason = OomReport::Reason;

constexpr size_t kMostHolders = 10;

std::string NameOfStream(Stream stream) {
  if (stream == nullptr) return "the default stream";
  if (stream == kAnyStream) return "any stream";
  if (stream == kNoStream) return "a stream that was destroyed";
  return absl::StrCat("stream 0x", absl::Hex(reinterpret_cast<uintptr_t>(stream)));
}

struct Amount {
  uint64_t bytes = 0, blocks = 0;
};

// The largest entries of a map as holders; name(holder, key) writes the key down.
template <typename Map, typename Fn>
std::vector<OomReport::Holder> Largest(const Map& map, Fn name) {
  std::vector<OomReport::Holder> holders;
  for (const auto& [key, amount] : map) {
    OomReport::Holder holder;
    holder.bytes = amount.bytes;
    holder.blocks = amount.blocks;
    name(&holder, key);
    holders.push_back(std::move(holder));
  }
  std::stable_sort(holders.begin(), holders.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  holders.resize(std::min(holders.size(), kMostHolders));
  return holders;
}

// Sums up free memory by reason, piece by piece in address order; pieces that touch are one.
class FreePieces {
 public:
  explicit FreePieces(OomReport* report) : report_(*report) {}
  void Add(Reason reason, uint64_t begin, uint64_t bytes) {
    if (reason != reason_ || begin != end_) run_ = 0;
    reason_ = reason;
    end_ = begin + bytes;
    run_ += bytes;
    OomReport::Unusable& sum = report_.unusable[static_cast<size_t>(reason)];
    sum.bytes += bytes;
    sum.largest = std::max(sum.largest, run_);
  }

 private:
  OomReport& report_;
  Reason reason_ = Reason::kPartlyUsed;
  uint64_t end_ = 0;
  uint64_t run_ = 0;
};

}  // namespace

HeapError DeviceHeap::OutOfMemory(StreamKey key, const Request& request, const Ladder& ladder) {
  auto report = std::make_shared<OomReport>();
  report->ladder = ladder;
  MutexLock lock(heap_mu_);
  GatherReport(key, request, report.get());
  report->number = ++stats_.out_of_memory;
  HeapError error(WEIR_ERROR_OUT_OF_MEMORY, OomSummary(*report));
  last_report_ = std::move(report);
  return error;
}

std::shared_ptr<const OomReport> DeviceHeap::LastReport() {
  MutexLock lock(heap_mu_);
  return last_report_;
}

void DeviceHeap::GatherReport(StreamKey key, const Request& request, OomReport* report) {
  OomReport& r = *report;
  ReclaimRooms();
  FlushKept();
  r.device = driver_->ordinal();
  r.bytes = request.bytes;
  r.alignment = request.size_class >= 0 ? kBlockAlignment : request.alignment;
  r.stream = NameOfStream(key.stream);
  r.pool = key.pool;
  r.rungs_allowed = options_.ladder;
  r.may_merge = options_.mesh == Meshing::kPressure && options_.ladder.mesh;
  r.may_map = driver_->has_vmm();
  r.rungs_allowed.borrow &= options_.borrow != Borrowing::kNever;
  r.is_captured = has_routes_.load(std::memory_order_relaxed) || r.ladder.captured;
  r.total = driver_->total_bytes();
  r.memory_limit = stats_.memory_limit;
  r.reserved = stats_.reserved_bytes;
  r.active = stats_.active_bytes;
  if (HeapError gone; key.pool != 0) {
    if (const auto pool = FindPool(key.pool, &gone)) r.pool_limit = pool->limit;
  }
  GatherFree(request, report);
  GatherHolders(report);
  r.changes = ChangesThatHelp(r);
}

void DeviceHeap::GatherFree(const Request& request, OomReport* report) {
  for (const Handle* h : handles_.all()) {
    if (h->is_idle() && IsSupply(*h) && IsComplete(*h)) report->idle += h->bytes;
  }
  const bool moves = moves_;
  FreePieces pieces(report);
  for (const auto& stream : streams_) {
    const bool is_pool = stream->key.pool != 0;
    for (const Arena* arena : {&stream->small, &stream->large}) {
      arena->ForEachBlock([&](const Block& b) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        if (b.span != nullptr && b.span->free_count > 0) {
          pieces.Add(is_pool ? Reason::kCapturePool : Reason::kSmallObjects, b.begin,
                     b.span->free_count * uint64_t{b.span->object_bytes});
        }
        if (b.state != BlockState::kReady) return;
        const bool fits = b.bytes >= request.block;
        Arena::ForEachMapping(b.begin, b.end(), b.segment, [&](const Mapping* m) {
          const Handle* h = m->handle;
          if (m != h->mappings) return;  // the same memory is also ready at its owner's address
          const uint64_t begin = std::max(b.begin, m->at);
          const uint64_t bytes = std::min(b.end(), m->at + m->bytes) - begin;
          if (is_pool) {
            pieces.Add(Reason::kCapturePool, begin, bytes);
          } else if (!h->is_idle()) {
            pieces.Add(fits ? Reason::kOtherStream : Reason::kPartlyUsed, begin, bytes);
          } else if (h->pins > 0) {
            pieces.Add(Reason::kPinned, begin, bytes);
          } else if (!moves) {
            pieces.Add(Reason::kNotMoved, begin, bytes);
          } else if (!IsComplete(*h)) {
            pieces.Add(Reason::kNotComplete, begin, bytes);
          }
        });
      });
    }
    OomReport::Waiting waiting;
    stream->timeline.ForEachDeferred([&](const DeferredFree& free) {
      heap_mu_.AssertHeld();
      Found found{PointerIndex::Get().Find(free.address)};
      waiting.bytes += found.bytes();
    });
    if (waiting.bytes == 0) continue;
    waiting.stream =
        stream->is_any() ? "all work of the device" : NameOfStream(stream->timeline.stream());
    report->waiting.push_back(std::move(waiting));
  }
}

void DeviceHeap::GatherHolders(OomReport* report) {
  std::map<uint16_t, Amount> by_tag;
  std::map<uint64_t, Amount> by_size;
  for (const auto& stream : streams_) {
    for (const Arena* arena : {&stream->small, &stream->large}) {
      arena->ForEachBlock([&](const Block& b) {
        if (b.state != BlockState::kLive) return;
        Amount held{b.bytes, 1};
        if (b.span != nullptr) {
          held.blocks = b.span->CountActive() - b.span->CountDeferred();
          held.bytes = held.blocks * b.span->object_bytes;
        } else if (b.requested.load() == Block::kNotHeld) {
          return;  // in a thread cache
        }
        if (held.blocks == 0) return;
        for (Amount* sum : {&by_size[held.bytes / held.blocks],
                            &by_tag[b.span != nullptr ? Tags::kNone : b.tag.load()]}) {
          sum->bytes += held.bytes;
          sum->blocks += held.blocks;
        }
      });
    }
  }
  report->by_tag = Largest(
      by_tag, [](OomReport::Holder* holder, uint16_t tag) { holder->name = Tags::NameOf(tag); });
  report->by_size = Largest(
      by_size, [](OomReport::Holder* holder, uint64_t bytes) { holder->bytes_each = bytes; });
  std::map<CallStack, Amount> by_stack;
  for (const auto& [address, stack] : stacks_) {
    const Found found = Find(address);
    if (found.block == nullptr) continue;
    Amount& sum = by_stack[stack];
    sum.bytes += found.bytes();
    ++sum.blocks;
  }
  report->by_stack = Largest(
      by_stack, [](OomReport::Holder* holder, const CallStack& stack) { holder->stack = stack; });
}

void DeviceHeap::RecordStack(uint64_t address, uint64_t bytes) {
  if (bytes < options_.record_stacks) return;
  const CallStack stack = CallStack::Take();  // may take locks of the loader
  MutexLock lock(heap_mu_);
  try {
    stacks_[address] = stack;
  } catch (const std::bad_alloc&) {
    stacks_.erase(address);  // the report will lack it
  }
}

}  // namespace weir
