#include "allocator/pool/inspection.h"

#include <algorithm>

namespace weir {

void Inspection::AddBlock(const weir_block_info_t& block) {
  weir_segment_info_t& segment = segments_.back().info;
  blocks_.push_back(block);
  ++segments_.back().count;
  segment.bytes += block.bytes;
  if (block.state == WEIR_BLOCK_FREE) return;
  segment.active_bytes += block.bytes;
  if (block.state != WEIR_BLOCK_ALLOCATED) return;
  segment.allocated_bytes += block.bytes;
  segment.requested_bytes += block.requested_bytes;
}

void Inspection::Find(uint64_t address, weir_block_info_t* block,
                      weir_segment_info_t* segment) const {
  const Segment& newest = segments_.back();
  for (size_t i = newest.first; i < newest.first + newest.count && block != nullptr; ++i) {
    // A block without bytes has its address for itself.
    if (address - blocks_[i].address < std::max<uint64_t>(blocks_[i].bytes, 1)) {
      *block = blocks_[i];
      break;
    }
  }
  if (segment == nullptr) return;
  *segment = newest.info;
  segment->allocated_bytes = segment->active_bytes = segment->requested_bytes = 0;
}

void Inspection::Visit(weir_segment_visitor_t visit, void* user) {
  std::sort(segments_.begin(), segments_.end(),
            [](const Segment& a, const Segment& b) { return a.info.address < b.info.address; });
  for (const Segment& s : segments_) visit(&s.info, blocks_.data() + s.first, s.count, user);
}

}  // namespace weir
