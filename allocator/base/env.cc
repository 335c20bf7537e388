#include "allocator/base/env.h"

#include <cstdlib>

namespace weir {

std::string ReadEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace weir
