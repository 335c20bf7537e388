// Inspection: what weir_visit_segments shows, gathered under locks to be shown without them.
#ifndef WEIR_POOL_INSPECTION_H_
#define WEIR_POOL_INSPECTION_H_

#include <cstddef>
#include <vector>

#include "weir/inspect.h"

namespace weir {

class Inspection {
 public:
  // The sums over its blocks are made by AddBlock.
  void BeginSegment(const weir_segment_info_t& segment) {
    segments_.push_back({segment, blocks_.size(), 0});
  }
  // The next block of the segment begun last; makes it longer.
  void AddBlock(const weir_block_info_t& block);

  // The block at the address, of the segment begun last, which holds it, and that segment without
  // its sums.
  void Find(uint64_t address, weir_block_info_t* block, weir_segment_info_t* segment) const;

  // In address order.
  void Visit(weir_segment_visitor_t visit, void* user);

 private:
  struct Segment {
    weir_segment_info_t info;
    size_t first, count;  // in blocks_
  };
  std::vector<Segment> segments_;
  std::vector<weir_block_info_t> blocks_;
};

}  // namespace weir

#endif  // WEIR_POOL_INSPECTION_H_
