#include "allocator/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace weir {

void CheckFailed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "weir: internal error: %s is false at %s:%d\n", expression, file, line);
  std::abort();
}

}  // namespace weir
