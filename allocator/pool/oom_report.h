// OomReport: why a request failed and what would have made it fit. Gathered by the heap
// (device_heap_report.cc); the rest are pure functions.
#ifndef WEIR_POOL_OOM_REPORT_H_
#define WEIR_POOL_OOM_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "allocator/base/heap_options.h"
#include "allocator/pool/call_stack.h"
#include "allocator/pool/ladder.h"

namespace weir {

struct OomReport {
  // Free memory that did not serve, by reason.
  enum class Reason : uint8_t {
    kPartlyUsed,    // pieces too small for the request, in granules that hold blocks in use
    kOtherStream,   // large enough, but in granules that another stream uses
    kNotComplete,   // whole granules whose stream's work is not known to be complete
    kCapturePool,   // in arenas of capture pools
    kSmallObjects,  // free objects in spans that hold objects in use
    kPinned,        // whole granules that are pinned: they serve only where they are
    kNotMoved       // whole granules, but memory is not moved (compaction)
  };
  static constexpr size_t kReasons = 7;
  struct Unusable {
    uint64_t bytes = 0;
    uint64_t largest = 0;  // contiguous
  };
  struct Holder {
    std::string name;         // of a tag
    uint64_t bytes_each = 0;  // of a size
    CallStack stack;
    uint64_t bytes = 0;
    uint64_t blocks = 0;
  };
  struct Waiting {
    std::string stream;
    uint64_t bytes = 0;
  };
  struct Change {
    std::string text;        // what to do, with numbers
    uint64_t bytes = 0;      // that it would make usable
    bool is_enough = false;  // surely
  };

  int device = 0;
  uint64_t number = 0;  // counts the device's failures
  uint64_t bytes = 0;   // asked
  uint64_t alignment = 0;
  std::string stream;
  uint64_t pool = 0;
  Ladder ladder;
  LadderOptions rungs_allowed;
  bool may_merge = false;    // granules, before a request fails: the rung mesh
  bool may_map = true;       // false: segments of cuMemAlloc, which cannot be merged
  bool is_captured = false;  // some stream of the context, so that proofs were forbidden

  uint64_t total = 0;                // of the device
  uint64_t memory_limit = 0;         // UINT64_MAX: none
  uint64_t pool_limit = UINT64_MAX;  // of the request's pool
  uint64_t reserved = 0;
  uint64_t active = 0;
  uint64_t idle = 0;  // in whole granules that could be moved, and were not enough

  Unusable unusable[kReasons];
  std::vector<Waiting> waiting;                   // freed, but a stream still uses it
  std::vector<Holder> by_tag, by_size, by_stack;  // the largest first
  std::vector<Change> changes;                    // the most effective first

  // In use on the device, but not held by Weir: other processes, CUDA contexts, other libraries.
  uint64_t outside() const {
    const uint64_t used = total - std::min(total, ladder.driver_free);
    return ladder.driver_known && used > reserved ? used - reserved : 0;
  }
  const Unusable& of(Reason reason) const { return unusable[static_cast<size_t>(reason)]; }
};

const char* NameOf(OomReport::Reason reason);
// "3.2 GiB"
std::string FormatBytes(uint64_t bytes);
// What would have made the request fit, those that suffice alone first.
std::vector<OomReport::Change> ChangesThatHelp(const OomReport& report);

// One short paragraph, for weir_last_error().
std::string OomSummary(const OomReport& report);
std::string OomText(const OomReport& report);
std::string OomJson(const OomReport& report);  // schema "weir-oom/1"

}  // namespace weir

#endif  // WEIR_POOL_OOM_REPORT_H_
