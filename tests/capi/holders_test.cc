// Pinned ranges and observers of remaps through the public API.
#include <map>
#include <utility>
#include <vector>

#include "tests/capi/simulated_weir.h"
#include "weir/pinned_range.h"
#include "weir/remap_observer.h"

namespace weir::test {
namespace {

TEST_CASE("a pinned range stays mapped until it is unpinned, freed or not", "[holders]") {
  const SimulatedWeir weir;
  auto* block = static_cast<char*>(weir_malloc(20 * kMiB));
  REQUIRE(block != nullptr);
  if (IsPassthrough()) {
    CHECK(weir_pin_range(block, 20 * kMiB) == WEIR_ERROR_CONFIGURATION);
    CHECK(weir_free(block) == WEIR_OK);
    return;
  }
  REQUIRE(weir_pin_range(block + kMiB, 18 * kMiB) == WEIR_OK);
  CHECK(SimulatedWeir::Stats().pinned_bytes >= 18 * kMiB);
  {
    const sim::Peer peer(reinterpret_cast<uintptr_t>(block) + kMiB, 18 * kMiB);
    CHECK(weir_free(block) == WEIR_OK);
    CHECK(weir_empty_cache(0) == WEIR_OK);
    CHECK(peer.StillMapped());
    CHECK(weir_trim(0, 0) == WEIR_OK);
    CHECK(weir_verify() == WEIR_OK);
    CHECK(peer.StillMapped());
    CHECK(SimulatedWeir::Stats().reserved_bytes == SimulatedWeir::Stats().pinned_bytes);
  }
  CHECK(weir_unpin_range(block + kMiB, 18 * kMiB) == WEIR_OK);
  CHECK(weir_empty_cache(0) == WEIR_OK);
  CHECK(SimulatedWeir::Stats().reserved_bytes == 0);
  CHECK(SimulatedWeir::Stats().pinned_bytes == 0);
}

TEST_CASE("what cannot be pinned or unpinned is refused with a reason", "[holders]") {
  const SimulatedWeir weir;
  if (IsPassthrough()) return;
  int on_the_host = 0;
  CHECK(weir_pin_range(nullptr, 8) == WEIR_ERROR_NOT_OWNED);
  CHECK(weir_pin_range(&on_the_host, sizeof(on_the_host)) == WEIR_ERROR_NOT_OWNED);
  CHECK(ErrorSays("is not memory of Weir"));
  void* block = weir_malloc(kMiB);
  CHECK(weir_pin_range(block, 0) == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(weir_pin_range(block, SIZE_MAX) == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(weir_pin_range(block, 900 * kMiB) == WEIR_ERROR_NOT_OWNED);
  CHECK(ErrorSays("is not memory that Weir has mapped"));
  CHECK(weir_unpin_range(block, kMiB) == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(ErrorSays("is not pinned"));
  CHECK(weir_free(block) == WEIR_OK);
}

TEST_CASE("a PinnedRange pins for its lifetime and can be moved", "[holders][cpp_api]") {
  const SimulatedWeir weir;
  if (IsPassthrough()) return;
  void* block = weir_malloc_device(3 * kMiB, 1);
  {
    PinnedRange first(block, 3 * kMiB);
    const PinnedRange second = std::move(first);
    CHECK(second.get() == block);
    CHECK(second.bytes() == 3 * kMiB);
    first = PinnedRange(block, 512);
    CHECK(weir_free(block) == WEIR_OK);
    CHECK(SimulatedWeir::Stats(1).pinned_bytes >= 3 * kMiB);
  }
  CHECK(SimulatedWeir::Stats(1).pinned_bytes == 0);
  CHECK_THROWS_AS(PinnedRange(nullptr, 8), Error);
}

TEST_CASE("observers are told, in the order of addition, until they are removed", "[holders]") {
  const SimulatedWeir weir;
  if (IsPassthrough()) return;
  std::vector<std::pair<int, int>> events;  // observer, event
  std::map<void*, std::size_t> mapped;
  void* block = nullptr;
  {
    const RemapObserver first(
        [&](int device, void* at, std::size_t bytes, weir_remap_event_t event) {
          if (device != 1) return;
          events.emplace_back(1, event);
          if (event == WEIR_REMAP_AFTER_MAP) {
            mapped[at] = bytes;
          } else {
            mapped.erase(at);
          }
        });
    const RemapObserver second(
        [&](int, void*, std::size_t, weir_remap_event_t event) { events.emplace_back(2, event); });
    block = weir_malloc_device(40 * kMiB, 1);
    REQUIRE(block != nullptr);
    REQUIRE(!events.empty());
    std::size_t bytes = 0;
    for (const auto& [at, length] : mapped) bytes += length;
    CHECK(bytes == SimulatedWeir::Stats(1).reserved_bytes);
    CHECK(weir_free(block) == WEIR_OK);
    CHECK(weir_empty_cache(1) == WEIR_OK);
    CHECK(mapped.empty());
  }
  for (std::size_t i = 0; i < events.size(); ++i) CHECK(events[i].first == (i % 2 == 0 ? 1 : 2));
  const std::size_t seen = events.size();
  CHECK(weir_free(weir_malloc_device(40 * kMiB, 1)) == WEIR_OK);
  CHECK(events.size() == seen);
  CHECK(weir_observe_remap(nullptr, nullptr) == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(weir_unobserve_remap([](int, void*, size_t, int, void*) {}, nullptr) ==
        WEIR_ERROR_INVALID_ARGUMENT);
}

TEST_CASE("an observer that needs the driver through Weir is refused", "[holders]") {
  const SimulatedWeir weir;
  if (IsPassthrough()) return;
  std::vector<int> answers;
  {
    const RemapObserver observer([&](int, void* at, std::size_t, weir_remap_event_t) {
      if (!answers.empty()) return;
      answers = {weir_malloc(100 * kMiB) == nullptr ? weir_last_status() : WEIR_OK,
                 weir_empty_cache(0),
                 weir_trim(0, 0),
                 weir_verify(),
                 weir_pin_range(at, 8),
                 weir_preallocate(1, kMiB)};
    });
    CHECK(weir_free(weir_malloc(40 * kMiB)) == WEIR_OK);
  }
  REQUIRE(answers.size() == 6);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    INFO(i);
    // A new mapping belongs to nobody before the change is complete.
    CHECK(answers[i] ==
          (i == 4 && TestOptions() == "vmm:off" ? WEIR_ERROR_NOT_OWNED : WEIR_ERROR_IN_CALLBACK));
  }
}

}  // namespace
}  // namespace weir::test
