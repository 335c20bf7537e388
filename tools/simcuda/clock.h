// Vector clocks of the happens-before relation.
//
// A lane is a sequence in which everything is ordered: a stream, or one chain of a graph. Position
// p of lane l is its p-th operation. "A clock covers (l, p)" means that what owns the clock is
// ordered after that operation, and then it also covers everything that operation was ordered
// after: merges keep this invariant, so covering the tail of a lane proves that its whole clock was
// merged.
#ifndef WEIR_TOOLS_SIMCUDA_CLOCK_H_
#define WEIR_TOOLS_SIMCUDA_CLOCK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace weir::sim {

using Lane = uint32_t;

class VectorClock {
 public:
  uint64_t At(Lane lane) const { return lane < seen_.size() ? seen_[lane] : 0; }
  bool Covers(Lane lane, uint64_t position) const { return At(lane) >= position; }
  void Raise(Lane lane, uint64_t position) {
    if (lane >= seen_.size()) seen_.resize(size_t{lane} + 1, 0);
    if (seen_[lane] < position) seen_[lane] = position;
  }
  bool CoversAll(const VectorClock& other) const {
    for (size_t i = 0; i < other.seen_.size(); ++i) {
      if (At(static_cast<Lane>(i)) < other.seen_[i]) return false;
    }
    return true;
  }
  void Merge(const VectorClock& other) {
    if (other.seen_.size() > seen_.size()) seen_.resize(other.seen_.size(), 0);
    for (size_t i = 0; i < other.seen_.size(); ++i) {
      if (seen_[i] < other.seen_[i]) seen_[i] = other.seen_[i];
    }
  }

 private:
  std::vector<uint64_t> seen_;  // by lane; missing lanes are 0, "nothing seen"
};

// A clock that many operations share until it changes.
class SharedClock {
 public:
  bool Covers(Lane lane, uint64_t position) const { return clock_->Covers(lane, position); }
  const VectorClock& operator*() const { return *clock_; }
  // The clock as it is now; later changes do not show in it.
  std::shared_ptr<const VectorClock> Share() const { return clock_; }
  void Raise(Lane lane, uint64_t position) {
    if (!clock_->Covers(lane, position)) Own()->Raise(lane, position);
  }
  void Merge(const VectorClock& other) {
    if (!clock_->CoversAll(other)) Own()->Merge(other);
  }

 private:
  VectorClock* Own() {
    if (clock_.use_count() > 1) clock_ = std::make_shared<VectorClock>(*clock_);
    return clock_.get();
  }

  std::shared_ptr<VectorClock> clock_ = std::make_shared<VectorClock>();
};

// Hands out lanes. The lane of something that is gone is given out again, going on where it ended,
// once the host has seen its end: then everything submitted later is ordered after it anyway.
class LaneTable {
 public:
  Lane Take(const VectorClock& host) {
    for (size_t i = 0; i < free_.size(); ++i) {
      const Lane lane = free_[i];
      if (!host.Covers(lane, last_[lane])) continue;
      free_[i] = free_.back();
      free_.pop_back();
      return lane;
    }
    last_.push_back(0);
    return static_cast<Lane>(last_.size() - 1);
  }
  void GiveBack(Lane lane) { free_.push_back(lane); }
  uint64_t Last(Lane lane) const { return last_[lane]; }
  // The lane goes on by `count` operations; the position of the last of them.
  uint64_t Advance(Lane lane, uint64_t count = 1) { return last_[lane] += count; }

 private:
  std::vector<uint64_t> last_;
  std::vector<Lane> free_;
};

}  // namespace weir::sim

#endif  // WEIR_TOOLS_SIMCUDA_CLOCK_H_
