#include "allocator/vmm/boundary_plan.h"

#include <algorithm>

namespace weir {
namespace {

// The owner of a granule that is used in part and can have guests; nullptr if it cannot.
Mapping* PossibleHost(uint64_t at, uint64_t granule,
                      const std::function<bool(const Mapping&)>& is_used) {
  Mapping* m = PointerIndex::Get().FindMapping(at);
  const bool possible = m != nullptr && m->bytes == granule && !m->shared && is_used(*m) &&
                        !m->handle->taken && !m->handle->stuck.load() && m->handle->pins == 0 &&
                        m->handle->id != 0;
  return possible ? m : nullptr;
}

}  // namespace

void CollectFreeEnds(const Arena& arena, FreeEnds* ends) {
  const auto is_used = [](const Mapping& m) { return m.live > 0; };
  arena.ForEachReady([&](const Block& b) { AddFreeEnds(b, arena.granule(), is_used, ends); });
}

void AddFreeEnds(const Block& ready, uint64_t granule,
                 const std::function<bool(const Mapping&)>& is_used, FreeEnds* ends) {
  if (ready.segment != nullptr) return;
  const uint64_t begin = ready.begin, end = ready.end();
  const uint64_t first = AlignUp(begin, granule), last = AlignDown(end, granule);
  if (begin < first && first <= end) {
    if (Mapping* m = PossibleHost(begin, granule, is_used))
      ends->tails.push_back({m, begin, first - begin});
  }
  if (last < end && begin <= last) {
    if (Mapping* m = PossibleHost(last, granule, is_used))
      ends->heads.push_back({m, last, end - last});
  }
}

bool IsTimeToShare(uint64_t idle, uint64_t most, uint64_t request) {
  constexpr double kShortage = 0.005;
  return static_cast<double>(idle) <
         kShortage * static_cast<double>(most) + static_cast<double>(request);
}

bool PlanBoundaries(FreeEnds ends, uint64_t bytes, uint64_t granule, uint64_t most_whole,
                    SharedBoundaries* plan) {
  const auto by_bytes = [](const FreeEnd& a, const FreeEnd& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.begin < b.begin;
  };
  for (std::vector<FreeEnd>* list : {&ends.tails, &ends.heads}) {
    list->push_back({});  // none
    std::sort(list->begin(), list->end(), by_bytes);
  }
  const uint64_t most = ends.tails.back().bytes + ends.heads.back().bytes;
  const uint64_t whole = bytes > most ? (bytes - most + granule - 1) / granule : 0;
  if (whole > most_whole || bytes < whole * granule) return false;
  const uint64_t rest = bytes - whole * granule;
  uint64_t least = UINT64_MAX;
  size_t h = ends.heads.size() - 1;
  for (const FreeEnd& tail : ends.tails) {
    while (h > 0 && tail.bytes + ends.heads[h - 1].bytes >= rest) --h;
    const uint64_t sum = tail.bytes + ends.heads[h].bytes;
    if (sum < rest || sum >= least) continue;
    least = sum;
    *plan = {tail, ends.heads[h], whole};
  }
  if (least == UINT64_MAX) return false;
  // What is used of them: the tail whole, as far as it is needed.
  FreeEnd& tail = plan->tail;
  const uint64_t in_tail = std::min(tail.bytes, rest);
  tail.begin += tail.bytes - in_tail;
  tail.bytes = in_tail;
  plan->head.bytes = rest - in_tail;
  return true;
}

}  // namespace weir
