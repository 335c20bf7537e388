// Where peers hold pages: a small device, and options that give idle memory back at once.
#ifndef WEIR_TESTS_POOL_PINS_FIXTURE_H_
#define WEIR_TESTS_POOL_PINS_FIXTURE_H_

#include "tests/pool/heap_fixture.h"

namespace weir::test {

inline sim::Config Device(uint64_t bytes, bool vmm = true) {
  sim::Config config;
  config.memory_bytes = bytes;
  config.vmm = vmm;
  return config;
}

inline HeapOptions DecayingOptions(bool stitch) {
  HeapOptions options;
  options.stitch = stitch;
  options.idle_decay = 1e-9;
  options.release_threshold = 0;
  return options;
}

}  // namespace weir::test

#endif  // WEIR_TESTS_POOL_PINS_FIXTURE_H_
