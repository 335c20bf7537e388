// Request: what a caller wants, and as what it is served; and the words in which rungs answer.
#ifndef WEIR_POOL_REQUEST_H_
#define WEIR_POOL_REQUEST_H_

#include <algorithm>
#include <cstdint>

#include "allocator/base/bytes.h"
#include "allocator/block/block.h"
#include "allocator/block/size_classes.h"
#include "allocator/block/span.h"
#include "allocator/pool/context_replay.h"

namespace weir {

struct Request {
  uint64_t bytes;  // what the caller asked for
  uint64_t alignment;
  int size_class;                       // of the object, or -1 for a block of its own
  uint64_t block;                       // bytes of the block: a span, or the request rounded up
  ContextReplay::Context context = {};  // of large requests, with stitching
};

// Served by a block of its own, however small it is.
inline Request MakeBlockRequest(uint64_t bytes, uint64_t alignment) {
  // Blocks of their own are larger than any small object: the pointer index relies on it.
  const uint64_t least = std::max(bytes, kMaxSmallBytes + kBlockAlignment);
  return {bytes, std::max(alignment, kBlockAlignment), -1, AlignUp(least, kBlockAlignment)};
}

// For `bytes` in a block that has room for `padded`, at least as many. An object notes what was not
// asked for in few bits (Span::held): who asked for much less than it needs a block of its own.
// In pools spans lie on multiples of their size, so that an object's address says where its span
// begins (device_heap_restore.h).
inline Request MakeRequest(uint64_t bytes, uint64_t padded, uint64_t alignment, bool in_pool) {
  Request request = MakeBlockRequest(padded, alignment);
  if (padded <= kMaxSmallBytes && alignment <= kBlockAlignment) {
    const int size_class = SizeClassOf(padded);
    if (SizeOfClass(size_class) - bytes < Span::kHasUses)
      request = {bytes, in_pool ? kSpanBytes : kSpanAlignment, size_class, kSpanBytes};
  }
  request.bytes = bytes;
  return request;
}

enum class Planned { kYes, kNeedsAddresses, kNeedsProof, kNoMemory };

// What may be done so that the borrower comes after the lender.
enum class BorrowOrder {
  kNothing,     // the lender's work must be known to be complete
  kAsk,         // record and query markers
  kStreamWait,  // make the borrower's stream wait, on the device
  kHostWait,
};

}  // namespace weir

#endif  // WEIR_POOL_REQUEST_H_
