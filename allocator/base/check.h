// WEIR_CHECK: a broken invariant of Weir itself. Bad input is a Status, never a check.
#ifndef WEIR_BASE_CHECK_H_
#define WEIR_BASE_CHECK_H_

namespace weir {

// Prints to stderr and aborts: going on would hand out memory that may be in use.
[[noreturn]] void CheckFailed(const char* expression, const char* file, int line);

}  // namespace weir

#define WEIR_CHECK(condition)                              \
  do {                                                     \
    if (!(condition)) [[unlikely]]                         \
      ::weir::CheckFailed(#condition, __FILE__, __LINE__); \
  } while (false)

// Only where WEIR_CHECKS is on.
#ifdef WEIR_CHECKS
#define WEIR_DCHECK(condition) WEIR_CHECK(condition)
#else
#define WEIR_DCHECK(condition) \
  do {                         \
    (void)sizeof(condition);   \
  } while (false)
#endif

#endif  // WEIR_BASE_CHECK_H_
