// Where peers hold pages: a small device, and options that give idle memory back at once.
#ifndef WEIR_TESTS_POOL_PINS_FIXTURE_H_
#define WEIR_TESTS_POOL_PINS_FIXTURE_H_

#include "tests/pool/heap_fixture.h"

namespace weir::test {

inline HeapOptions DecayingOptions(bool stitch) {
  HeapOptions options;
  options.stitch = stitch;
  options.mesh = Meshing::kPressure;
  options.idle_decay = 1e-9;
  options.release_threshold = 0;
  return options;
}

// Merges what can be merged, then gives idle memory back.
inline HeapError Compact(HeapFixture& f, uint64_t keep_bytes) {
  weir_compact_options_t options{};
  options.merge = 1;
  options.keep_bytes = keep_bytes;
  weir_compact_result_t result;
  return f.heap().Compact(options, &result);
}

}  // namespace weir::test

#endif  // WEIR_TESTS_POOL_PINS_FIXTURE_H_
