// What pair_bench times: an allocator's two functions.
#ifndef WEIR_BENCH_PAIR_BENCH_H_
#define WEIR_BENCH_PAIR_BENCH_H_

#include <cstddef>

namespace weir::bench {

struct Pair {
  void* (*allocate)(size_t bytes);
  void (*free)(void* p);
};

// CUB's CachingDeviceAllocator; cub_pair.cc, where CUB's headers are installed.
Pair CubPair();

}  // namespace weir::bench

#endif  // WEIR_BENCH_PAIR_BENCH_H_
