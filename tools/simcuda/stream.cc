#include "tools/simcuda/stream.h"

#include "absl/strings/str_cat.h"

namespace weir::sim {

bool Mark::MergeInto(SharedClock* target) const {
  bool covered = true;
  for (const Point& point : points) {
    covered = covered && target->Covers(point.stream->lane, point.position);
  }
  if (covered) return false;  // and then the clock is covered too, see clock.h
  target->Merge(*clock);
  for (const Point& point : points) target->Raise(point.stream->lane, point.position);
  return true;
}

std::string Stream::Name() const {
  if (kind == StreamKind::kLegacy) return absl::StrCat("the legacy stream of device ", device);
  return absl::StrCat("stream ", id, " of device ", device);
}

}  // namespace weir::sim
