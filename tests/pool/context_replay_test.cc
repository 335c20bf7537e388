#include "allocator/pool/context_replay.h"

#include <memory>
#include <random>
#include <set>
#include <vector>

#include "tests/support/catch.h"

namespace weir {
namespace {

std::vector<uint64_t> Found(const ContextReplay& replay, const ContextReplay::Context& context) {
  std::vector<uint64_t> found;
  replay.Find(context, [&found](uint64_t address) {
    found.push_back(address);
    return false;
  });
  return found;
}

}  // namespace

TEST_CASE("a repeated sequence of requests finds the addresses of the one before", "[replay]") {
  const auto replay = std::make_unique<ContextReplay>();
  const std::vector<uint64_t> sizes{5, 9, 5, 5, 7, 1, 9, 9, 3, 5};  // all that matters is the order
  uint64_t request = 0, found = 0;
  for (int period = 0; period < 150; ++period) {
    for (size_t i = 0; i < sizes.size(); ++i, ++request) {
      const ContextReplay::Context context = replay->Next(sizes[i]);
      REQUIRE(context.valid);
      const uint64_t mine = 1000 + i;
      uint64_t first = 0;
      const bool is_found = replay->Find(context, [&first](uint64_t address) {
        first = address;
        return true;
      });
      REQUIRE(is_found == context.known);
      // Until there are 256 requests before it, no context is like another.
      REQUIRE(context.known == (request >= 256 + sizes.size()));
      if (is_found) REQUIRE(first == mine);
      found += is_found ? 1 : 0;
      replay->Remember(context, mine);
    }
  }
  REQUIRE(found > 1000);
}

TEST_CASE("another size before a request makes another context, for as long as it is remembered",
          "[replay]") {
  const auto replay = std::make_unique<ContextReplay>();
  for (int i = 0; i < 600; ++i) replay->Remember(replay->Next(4), 77);
  REQUIRE(replay->Next(4).known);
  replay->Next(5);
  for (int i = 0; i < 255; ++i) REQUIRE_FALSE(replay->Next(4).known);
  replay->Next(4);
  REQUIRE(replay->Next(4).known);  // of the last 256 again; the last 1,024 still differ
  REQUIRE_FALSE(replay->Next(6).known);
}

TEST_CASE("of several addresses of a context the longest unused comes first", "[replay]") {
  const auto replay = std::make_unique<ContextReplay>();
  ContextReplay::Context context = replay->Next(4);
  context.known = true;
  for (const uint64_t address : {1, 2, 3}) replay->Remember(context, address);
  // Under the long and under the short context.
  REQUIRE(Found(*replay, context) == std::vector<uint64_t>{1, 2, 3, 1, 2, 3});
  replay->Remember(context, 1);
  REQUIRE(Found(*replay, context) == std::vector<uint64_t>{2, 3, 1, 2, 3, 1});
  REQUIRE(replay->Find(context, [](uint64_t address) { return address == 3; }));
}

TEST_CASE("what is remembered is bounded: the longest unused is forgotten", "[replay]") {
  const auto replay = std::make_unique<ContextReplay>();
  ContextReplay::Context context = replay->Next(4);
  context.known = true;
  for (uint64_t address = 1; address <= 1000; ++address) replay->Remember(context, address);
  const std::vector<uint64_t> found = Found(*replay, context);
  REQUIRE(found.size() == 128);
  for (const uint64_t address : found) REQUIRE(address > 936);
}

TEST_CASE("random requests are not taken for known ones", "[replay]") {
  const auto replay = std::make_unique<ContextReplay>();
  std::mt19937_64 random(1);
  for (uint64_t i = 0; i < 20000; ++i) {
    const ContextReplay::Context context = replay->Next(random() % 4);
    REQUIRE_FALSE(context.known);
    replay->Remember(context, i + 1);
  }
}

}  // namespace weir
