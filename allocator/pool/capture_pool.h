// CapturePool: memory that serves one set of CUDA graphs and nothing else.
//
// A graph runs on the addresses that it was captured with, at any later time. What is handed out
// for a capture therefore comes from a pool: it has arenas of its own, whose memory is nobody
// else's supply and is never unmapped while the pool is in use, and what is freed there serves the
// same pool again. When the pool is released its memory becomes ordinary, once all work that the
// context was given by then is complete: graphs may still be running.
//
// A pool may have a *source*, functions of the program that give it classic segments, and may
// forbid to split blocks: then each is a segment of its own. What such a pool has goes back to
// where it came from and nowhere else, also after the release.
//
// A *route* leads requests to a pool: those of one thread, or those that a filter picks.
#ifndef WEIR_POOL_CAPTURE_POOL_H_
#define WEIR_POOL_CAPTURE_POOL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "allocator/driver/device_driver.h"
#include "weir/weir.h"

namespace weir {

// Guarded by the heap lock.
struct CapturePool {
  uint64_t id = 0;
  uint64_t users = 1;           // 0: released
  uint64_t limit = UINT64_MAX;  // physical bytes in its arenas
  // The source; null: the driver. Never changes.
  weir_pool_allocate_t allocate = nullptr;
  weir_pool_deallocate_t deallocate = nullptr;
  void* user = nullptr;
  bool no_split = false;    // does not change while it has streams
  bool use_on_oom = false;  // what is idle here may serve ordinary requests

  bool has_source() const { return allocate != nullptr; }
  bool has_segments() const { return has_source() || no_split; }
};

// A segment that its source gets back, once no lock is held.
struct LeavingSegment {
  std::shared_ptr<const CapturePool> pool;
  uint64_t at;
  uint64_t bytes;
  Stream stream;
};

// While a source of the program runs on the calling thread no route leads to a pool.
class InsideSource {
 public:
  InsideSource() { ++depth_; }
  ~InsideSource() { --depth_; }
  InsideSource(const InsideSource&) = delete;
  InsideSource& operator=(const InsideSource&) = delete;
  static bool is_here() { return depth_ > 0; }

 private:
  static inline thread_local int depth_ = 0;
};

using RouteFilter = int (*)(Stream stream, void* user);

struct Route {
  std::shared_ptr<CapturePool> pool;
  uint64_t thread = 0;  // ThreadNumber(); or 0, then:
  RouteFilter filter = nullptr;
  void* user = nullptr;
};

// The newest last; it wins. Never changed, only replaced, so that filters run without a lock.
using Routes = std::vector<Route>;

}  // namespace weir

#endif  // WEIR_POOL_CAPTURE_POOL_H_
