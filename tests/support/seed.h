// The seed of a random test: WEIR_TEST_SEED, or one that is printed with every failure.
#ifndef WEIR_TESTS_SUPPORT_SEED_H_
#define WEIR_TESTS_SUPPORT_SEED_H_

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>

namespace weir::test {

inline uint64_t Seed() {
  const char* text = std::getenv("WEIR_TEST_SEED");
  const uint64_t seed = text != nullptr ? std::stoull(text) : std::random_device{}();
  std::cerr << "seed " << seed << " (repeat with WEIR_TEST_SEED=" << seed << ")\n";
  return seed;
}

}  // namespace weir::test

#endif  // WEIR_TESTS_SUPPORT_SEED_H_
