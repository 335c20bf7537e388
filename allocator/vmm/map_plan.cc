#include "allocator/vmm/map_plan.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <tuple>
#include <utility>

namespace weir {
namespace {

// The blocks of a free run, with sums of its holes, so that a place is judged without walking the
// run: runs of tens of thousands of pieces would take seconds.
class FreeRun {
 public:
  void Set(const Block* first) {
    extents_.clear();
    uint64_t holes = 0;
    for (last_ = first;; last_ = last_->next) {
      const bool is_hole = last_->state == BlockState::kHole;
      extents_.push_back({last_->begin, holes, is_hole});
      if (is_hole) holes += last_->bytes;
      if (last_->next == nullptr || !last_->next->is_free()) break;
    }
  }
  const Block* last() const { return last_; }

  // The bytes of holes' granules that [begin, end), a part of the run, touches.
  uint64_t MissingBytes(uint64_t begin, uint64_t end, uint64_t granule) const {
    const Extent& from = Containing(begin);
    const Extent& to = Containing(end - 1);
    const uint64_t before = from.is_hole ? AlignDown(begin, granule) - from.begin : 0;
    const uint64_t within = to.is_hole ? AlignUp(end, granule) - to.begin : 0;
    return to.holes_before + within - (from.holes_before + before);
  }

 private:
  struct Extent {
    uint64_t begin;
    uint64_t holes_before;  // bytes
    bool is_hole;
  };
  const Extent& Containing(uint64_t address) const {
    const auto after = std::upper_bound(extents_.begin(), extents_.end(), address,
                                        [](uint64_t at, const Extent& e) { return at < e.begin; });
    return *std::prev(after);
  }

  std::vector<Extent> extents_;
  const Block* last_ = nullptr;
};

struct Choice {
  uint64_t missing = std::numeric_limits<uint64_t>::max();
  uint64_t run_bytes = 0;
  uint64_t begin = 0;
  Block* run = nullptr;
};

template <typename IsDistinct>
void ConsiderRun(uint64_t granule, Block* first, uint64_t bytes, uint64_t alignment,
                 const IsDistinct& is_distinct, FreeRun* run, Choice* best) {
  run->Set(first);
  const Block* last = run->last();
  const uint64_t run_begin = first->begin, run_end = last->end();
  const uint64_t run_bytes = run_end - run_begin;
  if (run_bytes < bytes) return;

  auto consider = [&](uint64_t begin) {
    if (begin < run_begin || begin + bytes > run_end) return;
    const uint64_t missing = run->MissingBytes(begin, begin + bytes, granule);
    if (std::tie(missing, run_bytes, begin) <
            std::tie(best->missing, best->run_bytes, best->begin) &&
        is_distinct(begin, begin + bytes)) {
      *best = {missing, run_bytes, begin, first};
    }
  };
  for (const Block* b = first; b != last->next; b = b->next) {
    consider(AlignUp(b->begin, alignment));  // grows to the right of b's begin
    if (b->state == BlockState::kReady && b->end() >= run_begin + bytes) {
      consider(AlignDown(b->end() - bytes, alignment));  // to the left of b's end
    }
  }
  // The right end of the run, unless it is wide open: then its begin is as good and keeps it whole.
  if (last->state != BlockState::kHole || last->bytes < bytes) {
    consider(AlignDown(run_end - bytes, alignment));
  }
}

std::optional<Window> MakeWindow(const Choice& best, uint64_t granule, uint64_t bytes) {
  if (best.run == nullptr) return std::nullopt;

  Window window{best.run, best.begin, best.begin, best.begin + bytes, {}, 0};
  const uint64_t end = best.begin + bytes;
  for (const Block* b = best.run; b != nullptr && b->begin < end; b = b->next) {
    if (b->end() <= best.begin || b->state != BlockState::kHole) continue;
    const uint64_t low = AlignDown(std::max(best.begin, b->begin), granule);
    const uint64_t high = AlignUp(std::min(end, b->end()), granule);
    window.holes.push_back({low, high - low});
    window.missing += high - low;
    window.busy_begin = std::min(window.busy_begin, low);
    window.busy_end = std::max(window.busy_end, high);
  }
  return window;
}

}  // namespace

std::optional<Window> FindWindow(const Arena& arena, uint64_t bytes, uint64_t alignment) {
  Choice best;
  const auto is_distinct = [&arena](uint64_t begin, uint64_t end) {
    return !arena.has_aliases() || arena.IsDistinct(begin, end);
  };
  FreeRun run;
  arena.ForEachFreeRun([&](Block* first) {
    ConsiderRun(arena.granule(), first, bytes, alignment, is_distinct, &run, &best);
  });
  return MakeWindow(best, arena.granule(), bytes);
}

std::optional<Window> FindWindow(const std::vector<Block*>& runs, uint64_t granule, uint64_t bytes,
                                 uint64_t alignment, const IsDistinctFn& is_distinct) {
  Choice best;
  FreeRun run;
  for (Block* first : runs) ConsiderRun(granule, first, bytes, alignment, is_distinct, &run, &best);
  return MakeWindow(best, granule, bytes);
}

std::optional<Window> FindFreshPlace(const Arena& arena, uint64_t bytes, uint64_t alignment) {
  Block* hole = arena.LargestHole();
  if (hole == nullptr) return std::nullopt;
  Block* run = hole;
  uint64_t begin = AlignUp(hole->begin, alignment);
  if (Block* ready = hole->prev; ready != nullptr && ready->state == BlockState::kReady) {
    const uint64_t there = AlignUp(ready->begin, alignment);
    if (there < hole->begin && hole->begin - there < bytes &&
        arena.IsDistinct(there, hole->begin)) {
      run = ready;
      begin = there;
    }
  }
  const uint64_t end = AlignUp(begin + bytes, arena.granule());
  if (end > hole->end()) return std::nullopt;
  const uint64_t missing = end - hole->begin;
  return Window{run, begin, std::min(begin, hole->begin), end, {{hole->begin, missing}}, missing};
}

std::vector<Handle*> ChooseVictims(const std::vector<Handle*>& handles, uint64_t bytes,
                                   const VictimRules& rules) {
  struct Candidate {
    int rank;  // spares, then complete, then incomplete
    uint64_t at;
    Handle* handle;
  };
  std::vector<Candidate> candidates;
  for (Handle* h : handles) {
    if (h->taken || !h->is_idle() || h->IsMappedIn(rules.keep_begin, rules.keep_end)) continue;
    if (h->mappings == nullptr) {
      candidates.push_back({0, 0, h});
    } else if (rules.is_complete(*h)) {
      candidates.push_back({1, h->at(), h});
    } else if (rules.take_incomplete) {
      candidates.push_back({2, h->at(), h});
    }
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    if (a.rank != b.rank) return a.rank < b.rank;
    return a.at != b.at ? a.at > b.at : a.handle->index < b.handle->index;
  });
  std::vector<Handle*> chosen;
  uint64_t sum = 0;
  for (const Candidate& c : candidates) {
    if (sum >= bytes) break;
    chosen.push_back(c.handle);
    sum += c.handle->bytes;
  }
  // A large one at the end may have made earlier ones superfluous.
  std::erase_if(chosen, [&](const Handle* h) {
    if (sum - h->bytes < bytes) return false;
    sum -= h->bytes;
    return true;
  });
  return chosen;
}

namespace {

// New handles for [at, end).
void AddNewPieces(uint64_t at, uint64_t end, uint64_t max_handle_bytes, MapPlan* plan) {
  while (at < end) {
    const uint64_t bytes = std::min(end - at, max_handle_bytes);
    plan->pieces.push_back({at, bytes, nullptr, true});
    at += bytes;
  }
}

}  // namespace

MapPlan TileHoles(const std::vector<AddressRange>& holes, const std::vector<Handle*>& victims,
                  uint64_t max_handle_bytes) {
  MapPlan plan;
  plan.holes = holes;
  std::vector<Handle*> left = victims;
  std::sort(left.begin(), left.end(), [](const Handle* a, const Handle* b) {
    return a->bytes != b->bytes ? a->bytes > b->bytes : a->index < b->index;
  });
  size_t first = 0;  // all before it are used
  for (const AddressRange& hole : holes) {
    uint64_t at = hole.begin;
    const uint64_t end = hole.begin + hole.bytes;
    for (size_t i = first; i < left.size() && at < end; ++i) {
      if (left[i] == nullptr || left[i]->bytes > end - at) continue;
      plan.pieces.push_back({at, left[i]->bytes, left[i], false});
      at += left[i]->bytes;
      left[i] = nullptr;
    }
    while (first < left.size() && left[first] == nullptr) ++first;
    AddNewPieces(at, end, max_handle_bytes, &plan);
  }
  std::erase(left, nullptr);
  plan.released = std::move(left);
  return plan;
}

MapPlan TileRow(const AddressRange& hole, const std::vector<Handle*>& victims,
                uint64_t max_handle_bytes) {
  MapPlan plan;
  uint64_t at = hole.begin;
  for (Handle* h : victims) {
    plan.pieces.push_back({at, h->bytes, h, false});
    at += h->bytes;
  }
  const uint64_t end = std::max(at, hole.begin + hole.bytes);
  AddNewPieces(at, end, max_handle_bytes, &plan);
  plan.holes = {{hole.begin, end - hole.begin}};
  return plan;
}

}  // namespace weir
