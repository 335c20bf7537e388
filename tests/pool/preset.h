// The options that a text of WEIR_CONF gives a heap.
#ifndef WEIR_TESTS_POOL_PRESET_H_
#define WEIR_TESTS_POOL_PRESET_H_

#include <string>
#include <string_view>

#include "allocator/base/options.h"
#include "tests/support/catch.h"

namespace weir::test {

inline HeapOptions OptionsFrom(std::string_view text) {
  ProcessOptions options;
  std::string error;
  const bool ok = ParseOptions(text, &options, &error);
  INFO(error);
  REQUIRE(ok);
  return options.heap;
}

}  // namespace weir::test

#endif  // WEIR_TESTS_POOL_PRESET_H_
