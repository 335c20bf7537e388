// DeviceHeap::FitView: which blocks and handles will be free, and the blocks of an arena as they
// will be. No lock is taken: see the class.
#include "allocator/pool/fit_view.h"

#include <algorithm>

namespace weir {

DeviceHeap::FitView::FitView(DeviceHeap& heap, const Circumstances& now)
    : heap_(heap), now_(now), wait_(heap.options_.ladder.wait) {
  FindStuck();
  for (const auto& stream : heap_.streams_) {
    for (const Arena* arena : {&stream->small, &stream->large}) {
      arena->ForEachBlock([this](const Block& b) {
        if (WillBeFree(b)) TakeFree(b);
      });
    }
  }
  const uint64_t hard = heap_.HardLimit(), reserved = heap_.stats_.reserved_bytes;
  room_ =
      AlignDown(std::min(hard > reserved ? hard - reserved : 0, now_.driver_free), heap_.granule_);
  FindSupply();
}

// ---- What will be free --------------------------------------------------------------------------

void DeviceHeap::FitView::FindStuck() {
  for (const auto& stream : heap_.streams_) {
    const StreamTimeline& timeline = stream->timeline;
    if (CanWaitFor(stream.get())) continue;
    const auto is_proved = [&](Epoch epoch) {
      return timeline.IsComplete(epoch) || (wait_ && timeline.HasMarkerFor(epoch));
    };
    if (timeline.has_deferred() && !is_proved(timeline.last_deferred_epoch()))
      timeline.ForEachDeferred([this](const DeferredFree& free) { stuck_.insert(free.address); });
    if (stream->returning != nullptr && !is_proved(stream->returning->return_epoch))
      stuck_returns_.insert(stream.get());
  }
}

bool DeviceHeap::FitView::WillBeFree(const Block& b) const {
  if (b.state == BlockState::kKept) return true;
  if (b.state == BlockState::kReturning) return !stuck_returns_.contains(b.owner);
  if (b.state != BlockState::kLive && b.state != BlockState::kDeferred) return false;
  // Borrowed blocks wait once more, for the borrower, before they go back.
  const bool returns = b.owner != b.arena->owner() && !b.owner->is_any();
  if (returns && !CanWaitFor(b.owner)) return false;
  if (const Span* span = b.span) {
    for (uint32_t i = 0; i < span->objects; ++i) {
      if (span->held[i].load() != Span::kNotHeld) return false;
      if (span->Test(span->deferred, i) && stuck_.contains(b.begin + i * span->object_bytes))
        return false;
    }
    return true;
  }
  if (b.state == BlockState::kDeferred) return !stuck_.contains(b.begin);
  return b.requested.load() == Block::kNotHeld;  // in a thread cache
}

void DeviceHeap::FitView::TakeFree(const Block& b) {
  if (!freed_.insert(&b).second) return;
  Arena::ForEachMapping(b.begin, b.end(), b.segment, [&](const Mapping* m) {
    ++freed_users_[m];
    if (!m->guest || b.state == BlockState::kLent) return;
    const uint64_t low = std::max(b.begin, m->at);
    const uint64_t lent = m->handle->mappings->at + (low - m->at);
    TakeFree(*PointerIndex::Get().FindContaining(lent));
  });
}

bool DeviceHeap::FitView::MayMove(const Handle& h) const {
  return DeviceHeap::IsSupply(h, now_.moves, /*pools_lend=*/true);
}

void DeviceHeap::FitView::FindSupply() {
  std::vector<const Handle*> complete;
  bool all_can_be_waited_for = true;
  for (const Handle* h : heap_.handles_.all()) {
    if (h->taken || !IsIdle(*h) || !MayMove(*h)) continue;
    bool is_complete = true, can_wait = true;
    for (const Mapping* m = h->mappings; m != nullptr; m = m->next) {
      const StreamHeap* stream = m->arena->owner();
      const bool done = stream->timeline.IsComplete(m->idle_epoch) && !freed_users_.contains(m);
      is_complete &= done;
      can_wait &= done || CanWaitFor(stream);
    }
    if (is_complete) complete.push_back(h);
    if (can_wait) supply_.push_back(h);
    all_can_be_waited_for &= can_wait;
  }
  // A miss does not know beforehand which waits a capture forbids, and gives up at the first.
  if (!all_can_be_waited_for) supply_ = complete;
}

uint64_t DeviceHeap::FitView::SupplyOutside(uint64_t begin, uint64_t end) const {
  uint64_t bytes = 0;
  for (const Handle* h : supply_) {
    if (!h->IsMappedIn(begin, end)) bytes += h->bytes;
  }
  return bytes;
}

// ---- The blocks of an arena as they will be -----------------------------------------------------

void DeviceHeap::FitView::Append(const Block& like, uint64_t begin, uint64_t end, BlockState state,
                                 Nodes* nodes) {
  if (begin >= end) return;
  if (!nodes->empty() && nodes->back().state == state && nodes->back().end() == begin &&
      nodes->back().segment == like.segment) {
    nodes->back().bytes += end - begin;
    return;
  }
  Block& node = nodes->emplace_back();
  node.begin = begin;
  node.bytes = end - begin;
  node.state = state;
  node.segment = like.segment;
}

void DeviceHeap::FitView::Add(const Block& like, uint64_t begin, uint64_t end, BlockState state,
                              Nodes* nodes) const {
  if (state == BlockState::kReady) {
    for (const AddressRange& range : taken_) {  // in address order
      if (range.begin + range.bytes <= begin || range.begin >= end) continue;
      const uint64_t low = std::max(begin, range.begin);
      Append(like, begin, low, state, nodes);
      begin = std::min(end, range.begin + range.bytes);
      Append(like, low, begin, BlockState::kBusy, nodes);
    }
  }
  Append(like, begin, end, state, nodes);
}

void DeviceHeap::FitView::DescribeBlock(const Block& b, Nodes* nodes) const {
  const bool becomes_ready = b.state == BlockState::kReady || IsFreed(b);
  if (b.segment != nullptr || b.state == BlockState::kHole) {
    Append(b, b.begin, b.end(), becomes_ready ? BlockState::kReady : b.state, nodes);
    return;
  }
  const bool shadow = b.state == BlockState::kShadow;
  if (!becomes_ready && !shadow) {
    Append(b, b.begin, b.end(), BlockState::kBusy, nodes);
    return;
  }
  if (becomes_ready && taken_.empty() && !heap_.records_.guests && !merging_ && !shadow) {
    Append(b, b.begin, b.end(), BlockState::kReady, nodes);
    return;
  }
  Arena::ForEachMapping(b.begin, b.end(), nullptr, [&](const Mapping* m) {
    const uint64_t low = std::max(b.begin, m->at), high = std::min(b.end(), m->at + m->bytes);
    const bool is_complete = m->arena->owner()->timeline.IsComplete(m->idle_epoch);
    BlockState state = BlockState::kBusy;
    if (IsDropped(*m)) {
      state = BlockState::kHole;
    } else if (m->guest) {  // unmapped at the begin of a miss if nobody uses it any more
      const bool is_dead = shadow && m->live == 0 && is_complete && MayMove(*m->handle);
      if (is_dead) state = BlockState::kHole;
    } else if (m->mapped && (becomes_ready || IsIdle(*m->handle))) {
      state = BlockState::kReady;
    }
    Add(b, low, high, state, nodes);
  });
}

DeviceHeap::FitView::Nodes DeviceHeap::FitView::Describe(const Arena& arena) const {
  std::vector<const Block*> blocks;
  arena.ForEachBlock([&](const Block& b) { blocks.push_back(&b); });
  std::sort(blocks.begin(), blocks.end(),
            [](const Block* a, const Block* b) { return a->begin < b->begin; });
  Nodes nodes;
  for (const Block* b : blocks) DescribeBlock(*b, &nodes);
  return nodes;
}

std::vector<Block*> DeviceHeap::FitView::Link(Nodes* nodes) {
  std::sort(nodes->begin(), nodes->end(),
            [](const Block& a, const Block& b) { return a.begin < b.begin; });
  std::vector<Block*> runs;
  Block* before = nullptr;
  for (Block& node : *nodes) {
    if (before != nullptr && before->end() == node.begin && before->segment == node.segment) {
      before->next = &node;
      node.prev = before;
    }
    if (node.is_free() && (node.prev == nullptr || !node.prev->is_free())) runs.push_back(&node);
    before = &node;
  }
  return runs;
}

void DeviceHeap::FitView::AddAddresses(const Arena& arena, const Request& request, Nodes* nodes) {
  const Block* hole = arena.LargestHole();
  if (hole != nullptr && hole->bytes >= request.block + request.alignment) return;
  uint64_t begin = 0, taken = 0;
  const uint64_t bytes = request.block + request.alignment + heap_.granule_;
  if (!heap_.addresses_.Take(bytes, arena.end_of_newest_region(), &begin, &taken)) return;
  heap_.addresses_.Return(begin, taken);
  Block& added = nodes->emplace_back();
  added.begin = begin;
  added.bytes = taken;
}

}  // namespace weir
