// A simulated stream: a queue of operations, its place in the happens-before relation, and its part
// in a capture. Protected by the simulator lock.
//
// Invariants: operations of one stream run one at a time in the order of submission; positions are
// those of the stream's lane; completed <= submitted; a position is complete when its operation
// ran.
#ifndef WEIR_TOOLS_SIMCUDA_STREAM_H_
#define WEIR_TOOLS_SIMCUDA_STREAM_H_

#include <cuda.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "tools/simcuda/clock.h"
#include "tools/simcuda/operation.h"

namespace weir::sim {

struct Capture;
struct Stream;

// What the checker remembers of an operation.
struct OperationRecord {
  std::string label;
  uint64_t stream_id;
  Lane lane;
  uint64_t position;
  std::shared_ptr<const VectorClock> clock;  // what it is ordered after, its own lane apart
};

// "The operation at this position of that stream."
struct Point {
  std::shared_ptr<Stream> stream;
  uint64_t position;
  bool Complete() const;
};

// A moment that can be waited for: all its points are complete. `clock` is what the points are
// ordered after; the points themselves are not in it.
struct Mark {
  absl::InlinedVector<Point, 1> points;
  std::shared_ptr<const VectorClock> clock;

  bool Complete() const {
    for (const Point& point : points) {
      if (!point.Complete()) return false;
    }
    return true;
  }
  // Makes the owner of the clock ordered after this moment; false if it was so already.
  bool MergeInto(SharedClock* target) const;
};

// A stretch of submissions. Held by its operations until they ran, so that the timeline knows when
// all of them did.
struct Era {
  std::shared_ptr<const VectorClock> host;  // the host's clock at its beginning
};

struct QueuedOperation {
  Operation operation;
  std::shared_ptr<OperationRecord> record;
  absl::InlinedVector<Point, 1> waits;  // of other streams; all complete before it may run
  std::shared_ptr<Era> era;
  bool even_after_errors = false;  // runs although the context is broken
};

enum class StreamKind { kLegacy, kBlocking, kNonBlocking };  // per-thread streams are blocking

struct Stream {
  CUstream handle = nullptr;  // as the user calls it; NULL for the legacy stream
  uint64_t id = 0;            // never used again
  int device = 0;
  int priority = 0;
  StreamKind kind = StreamKind::kBlocking;
  Lane lane = 0;

  uint64_t submitted = 0;
  uint64_t completed = 0;
  std::deque<QueuedOperation> queue;
  SharedClock clock;               // what the next operation will be ordered after
  uint64_t host_version_seen = 0;  // of the host clock, at the last merge into `clock`
  bool held = false;
  bool running = false;    // its operation at completed + 1 is being run
  bool destroyed = false;  // the handle is gone; the work goes on

  std::shared_ptr<Capture> capture;            // null: not capturing
  std::vector<uint32_t> capture_tail;          // nodes that the next captured node depends on
  std::vector<CUgraphNode> capture_tail_view;  // what cuStreamGetCaptureInfo handed out

  bool idle() const { return completed == submitted; }
  bool Ready() const {
    if (queue.empty() || held || running) return false;
    for (const Point& point : queue.front().waits) {
      if (!point.Complete()) return false;
    }
    return true;
  }
  std::string Name() const;
};

inline bool Point::Complete() const { return stream->completed >= position; }

}  // namespace weir::sim

#endif  // WEIR_TOOLS_SIMCUDA_STREAM_H_
