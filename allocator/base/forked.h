// Whether this process was forked from one that had started to use Weir. CUDA cannot be used in
// such a child, and locks of Weir may be held for ever by threads that it does not have: so the C
// API does nothing there (capi/last_error.h), and nobody below it is called. Set by the registry's
// fork handler (pool/registry.cc), never reset.
#ifndef WEIR_BASE_FORKED_H_
#define WEIR_BASE_FORKED_H_

#include <atomic>

namespace weir {

inline std::atomic<bool> is_forked{false};

inline bool IsForked() { return is_forked.load(std::memory_order_relaxed); }

}  // namespace weir

#endif  // WEIR_BASE_FORKED_H_
