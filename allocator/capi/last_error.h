// The calling thread's last failure, for weir_last_error and weir_last_status, and the border that
// no exception crosses.
#ifndef WEIR_CAPI_LAST_ERROR_H_
#define WEIR_CAPI_LAST_ERROR_H_

#include <new>

#include "allocator/base/forked.h"
#include "allocator/pool/heap_error.h"
#include "weir/weir.h"

namespace weir::capi {

// Records a failure (success leaves the last one as it was). Returns the code. Text beyond 4000
// bytes is cut off (the list of all options is shorter).
int SetLast(const HeapError& error) noexcept;
int SetLast(weir_status_t code, const char* text) noexcept;
const char* LastText() noexcept;
weir_status_t LastStatus() noexcept;

inline constexpr char kForkedText[] =
    "Weir cannot be used in a process that was forked from one that uses it, as CUDA cannot: start "
    "the process anew (in Python, by the start method spawn or forkserver)";

HeapError NullArgument(const char* name);

// Runs the body of a C function that returns a status. The only exception that can arise is that
// the host has no memory for bookkeeping. In the child of a fork all fail; those that give
// something up ask IsForked before and do nothing, since the parent still has it.
template <typename Fn>
int Guarded(Fn fn) noexcept {
  if (IsForked()) [[unlikely]]
    return SetLast(WEIR_ERROR_DRIVER, kForkedText);
  try {
    const HeapError error = fn();
    return error.ok() ? WEIR_OK : SetLast(error);
  } catch (const std::bad_alloc&) {
    return SetLast(WEIR_ERROR_OUT_OF_MEMORY, "the host has no memory left for Weir's bookkeeping");
  }
}

}  // namespace weir::capi

#endif  // WEIR_CAPI_LAST_ERROR_H_
