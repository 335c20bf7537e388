// Ladder: what the rungs of one miss may do and did, for the statistics and for the report of a
// failure.
#ifndef WEIR_POOL_LADDER_H_
#define WEIR_POOL_LADDER_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace weir {

// In the order in which a miss climbs them; device_heap_miss.cc says what each does.
enum class LadderRung : uint8_t { kComplete, kCaches, kMap, kBorrow, kWait, kMesh, kCallbacks };
inline constexpr size_t kLadderRungs = 7;
inline constexpr std::array<const char*, kLadderRungs> kLadderRungNames = {
    "complete", "caches", "map", "borrow", "wait", "mesh", "callbacks"};

// How far a rung that makes memory goes.
struct Rung {
  bool within_soft_limit;
  bool may_wait;                   // on the host
  bool may_share = false;          // boundaries, however much memory is idle
  uint64_t most_new = UINT64_MAX;  // bytes that may be made new, whatever the limits allow
};
// What such a rung has found out before it plans again.
struct Known {
  bool proved = false;           // idle handles whose work is complete are known
  bool context_captured = true;  // set with proved
  bool addresses_exhausted = false;
};

// What a pool with a source finds out before it asks for a segment.
struct SourceStep {
  bool released = false;  // the pool, since the request was routed to it
  uint64_t bytes = 0;     // of the segment
  uint64_t room = 0;      // below the limits
};

struct Ladder {
  struct Step {
    bool tried = false;
    uint64_t gained = 0;  // bytes that became free; what a callback said
  };
  std::array<Step, kLadderRungs> steps;
  // After a failure: bytes of whole granules that would have to become free so that the request
  // fits. 0: it lacks addresses, not memory.
  uint64_t missing = 0;
  uint64_t missing_in_pool = 0;  // what of it the limit of the request's capture pool forbids
  bool source_refused = false;   // the source of the request's pool had no segment to give
  uint64_t driver_free = 0;      // at that time
  bool driver_known = false;
  bool captured = false;         // a stream of the context was being captured, which forbade proofs
  uint64_t waits_before = 0;     // weir_stats_t::waits when it was begun
  uint64_t reserved_before = 0;  // and weir_stats_t::reserved_bytes

  Step& operator[](LadderRung rung) { return steps[static_cast<size_t>(rung)]; }
  const Step& operator[](LadderRung rung) const { return steps[static_cast<size_t>(rung)]; }
  void Gain(LadderRung rung, uint64_t bytes) {
    Step& step = (*this)[rung];
    step.tried = true;
    step.gained += std::min(bytes, UINT64_MAX - step.gained);  // a callback may say anything
  }
};

}  // namespace weir

#endif  // WEIR_POOL_LADDER_H_
