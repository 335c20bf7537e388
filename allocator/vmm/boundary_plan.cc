#include "allocator/vmm/boundary_plan.h"

#include <algorithm>

namespace weir {
namespace {

// The owner of a granule that is used in part and can have guests; nullptr if it cannot.
Mapping* PossibleHost(uint64_t at, uint64_t granule) {
  Mapping* m = PointerIndex::Get().FindMapping(at);
  const bool possible = m != nullptr && m->bytes == granule && !m->shared && m->live > 0 &&
                        !m->handle->taken && !m->handle->stuck && m->handle->pins == 0 &&
                        m->handle->id != 0;
  return possible ? m : nullptr;
}

}  // namespace

void CollectFreeEnds(const Arena& arena, FreeEnds* ends) {
  const uint64_t granule = arena.granule();
  arena.ForEachReady([&](const Block& b) {
    if (b.segment != nullptr) return;
    const uint64_t first = AlignUp(b.begin, granule), last = AlignDown(b.end(), granule);
    if (b.begin < first && first <= b.end()) {
      if (Mapping* m = PossibleHost(b.begin, granule))
        ends->tails.push_back({m, b.begin, first - b.begin});
    }
    if (last < b.end() && b.begin <= last) {
      if (Mapping* m = PossibleHost(last, granule))
        ends->heads.push_back({m, last, b.end() - last});
    }
  });
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
