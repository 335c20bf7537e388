// What weir/weir.h promises for when memory is short: limits, memory made in advance, callbacks,
// tags, reports.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "tests/capi/simulated_weir.h"
#include "weir/capture_pool.h"
#include "weir/device_pool.h"

namespace weir::test {
namespace {

bool HasVmm() { return !IsPassthrough() && TestOptions() != "vmm:off"; }

struct Callback {
  std::vector<void*> blocks;
  std::vector<size_t> needs;
  bool fails_inside = false;

  static size_t Free(int device, size_t bytes_needed, void* user) {
    auto* self = static_cast<Callback*>(user);
    self->needs.push_back(bytes_needed);
    void* inside = weir_malloc_device(900 * kMiB, device);
    self->fails_inside = inside == nullptr;
    if (self->blocks.empty()) return 0;
    void* block = self->blocks.back();
    self->blocks.pop_back();
    const size_t bytes = weir_usable_size(block);
    return weir_free(block) == WEIR_OK ? bytes : 0;
  }
};

std::string Report(int device, int format) {
  const size_t length = weir_oom_report(device, format, nullptr, 0);
  std::string text(length + 1, 'x');
  CHECK(weir_oom_report(device, format, text.data(), text.size()) == length);
  CHECK(text[length] == '\0');
  text.resize(length);
  return text;
}

TEST_CASE("weir_would_fit answers without using memory or starting a device", "[pressure]") {
  const SimulatedWeir weir;
  int fits = -1;
  size_t missing = 1;
  REQUIRE(weir_would_fit(1, 100 * kMiB, nullptr, &fits, &missing) == WEIR_OK);
  CHECK(fits == 1);
  CHECK(missing == 0);
  REQUIRE(weir_would_fit(1, 2 * kDeviceBytes, nullptr, &fits, &missing) == WEIR_OK);
  CHECK(fits == 0);
  CHECK(missing > 0);

  DevicePool pool(0);
  void* block = pool.Allocate(600 * kMiB);
  const weir_stats_t before = pool.Stats();
  CHECK(pool.WouldFit(400 * kMiB));
  CHECK_FALSE(pool.WouldFit(500 * kMiB));
  CHECK(pool.MissingBytes(500 * kMiB) >= 76 * kMiB);
  CHECK(pool.MissingBytes(400 * kMiB) == 0);
  const weir_stats_t after = pool.Stats();
  CHECK(std::memcmp(&before, &after, sizeof before) == 0);
  pool.Deallocate(block);
  CHECK(pool.WouldFit(500 * kMiB));

  CHECK(weir_would_fit(7, 1, nullptr, &fits, nullptr) == WEIR_ERROR_NO_DEVICE);
  CHECK(weir_would_fit(0, 1, nullptr, nullptr, nullptr) == WEIR_ERROR_INVALID_ARGUMENT);
}

TEST_CASE("a fraction of the device is a limit like any other", "[pressure]") {
  const SimulatedWeir weir;
  REQUIRE(weir_set_memory_fraction(0, 0.25) == WEIR_OK);
  CHECK(SimulatedWeir::Stats().memory_limit == kDeviceBytes / 4);
  CHECK(weir_malloc(300 * kMiB) == nullptr);
  CHECK(weir_last_status() == WEIR_ERROR_OUT_OF_MEMORY);
  REQUIRE(weir_set_memory_fraction(0, 1.0) == WEIR_OK);
  void* block = weir_malloc(300 * kMiB);
  CHECK(block != nullptr);
  CHECK(weir_free(block) == WEIR_OK);
  for (const double wrong : {0.0, -0.5, 1.01, std::numeric_limits<double>::quiet_NaN()}) {
    INFO(wrong);
    CHECK(weir_set_memory_fraction(0, wrong) == WEIR_ERROR_INVALID_ARGUMENT);
  }
  CHECK(weir_set_memory_fraction(7, 0.5) == WEIR_ERROR_NO_DEVICE);
  REQUIRE(weir_set_memory_limit(0, SIZE_MAX) == WEIR_OK);
}

TEST_CASE("memory made in advance is reserved until it is given back", "[pressure]") {
  const SimulatedWeir weir;
  if (!HasVmm()) {
    CHECK(weir_preallocate(0, kMiB) == WEIR_ERROR_CONFIGURATION);
    return;
  }
  REQUIRE(weir_preallocate(1, 100 * kMiB) == WEIR_OK);
  CHECK(SimulatedWeir::Stats(1).reserved_bytes == 100 * kMiB);
  CHECK(weir_preallocate(1, 2 * kDeviceBytes) == WEIR_ERROR_OUT_OF_MEMORY);
  CHECK(SimulatedWeir::Stats(1).reserved_bytes == 100 * kMiB);
  CHECK(weir_preallocate(9, kMiB) == WEIR_ERROR_NO_DEVICE);
  DevicePool(1).EmptyCache();
  CHECK(SimulatedWeir::Stats(1).reserved_bytes == 0);
}

TEST_CASE("callbacks are asked with what is missing, and may free and allocate", "[pressure]") {
  if (IsPassthrough()) return;
  const SimulatedWeir weir;
  Callback callback;
  for (int i = 0; i < 9; ++i) callback.blocks.push_back(weir_malloc(100 * kMiB));
  REQUIRE(weir_add_memory_callback(&Callback::Free, &callback) == WEIR_OK);
  void* block = weir_malloc(400 * kMiB);
  INFO(weir_last_error());
  CHECK(block != nullptr);
  CHECK(callback.needs.size() == 3);
  CHECK(std::is_sorted(callback.needs.rbegin(), callback.needs.rend()));
  if (HasVmm()) CHECK(callback.needs[0] == (400 - (1024 - 900)) * kMiB);
  CHECK(callback.fails_inside);
  REQUIRE(weir_remove_memory_callback(&Callback::Free, &callback) == WEIR_OK);
  CHECK(weir_malloc(900 * kMiB) == nullptr);
  CHECK(callback.needs.size() == 3);
  CHECK(weir_remove_memory_callback(&Callback::Free, &callback) == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(weir_add_memory_callback(nullptr, nullptr) == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(weir_free(block) == WEIR_OK);
  for (void* each : callback.blocks) CHECK(weir_free(each) == WEIR_OK);
}

TEST_CASE("threads whose requests do not fit ask the callbacks at once", "[pressure]") {
  if (IsPassthrough()) return;
  const SimulatedWeir weir;
  void* most = weir_malloc(1000 * kMiB);
  REQUIRE(most != nullptr);
  static std::atomic<int> calls;
  calls = 0;
  const weir_memory_callback_t none = [](int, size_t, void*) -> size_t {
    ++calls;
    return 0;
  };
  REQUIRE(weir_add_memory_callback(none, nullptr) == WEIR_OK);
  std::atomic<int> served{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 10; ++j) served += weir_malloc(100 * kMiB) != nullptr;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(served == 0);
  CHECK(calls == 40);
  REQUIRE(weir_remove_memory_callback(none, nullptr) == WEIR_OK);
  CHECK(weir_free(most) == WEIR_OK);
}

TEST_CASE("the report of a failure can be read whole or cut, as text and as JSON", "[pressure]") {
  const SimulatedWeir weir;
  REQUIRE(weir_push_tag("everything") == WEIR_OK);
  void* block = weir_malloc_device(900 * kMiB, 1);
  REQUIRE(weir_pop_tag() == WEIR_OK);
  CHECK(weir_malloc_device(200 * kMiB, 1) == nullptr);
  CHECK(weir_last_status() == WEIR_ERROR_OUT_OF_MEMORY);
  if (IsPassthrough()) {
    CHECK(weir_oom_report(1, WEIR_REPORT_TEXT, nullptr, 0) == 0);
  } else {
    CHECK(ErrorSays("209715200 bytes"));
    const std::string text = Report(1, WEIR_REPORT_TEXT), json = Report(1, WEIR_REPORT_JSON);
    INFO(text);
    CHECK(text.find("Asked: 209715200 bytes (200.0 MiB)") != std::string::npos);
    CHECK(text.find("everything") != std::string::npos);
    CHECK(json.find("\"schema\":\"weir-oom/1\"") != std::string::npos);
    CHECK(DevicePool(1).OomReport() == text);
    CHECK(DevicePool(1).OomReport(WEIR_REPORT_JSON) == json);
    char cut[6] = "?????";
    CHECK(weir_oom_report(1, WEIR_REPORT_TEXT, cut, 4) == text.size());
    CHECK(std::string(cut, 6) == std::string("Out\0?\0", 6));
    CHECK(weir_oom_report(1, WEIR_REPORT_TEXT, cut, 0) == text.size());
    CHECK(cut[0] == 'O');
  }
  CHECK(weir_free(block) == WEIR_OK);
}

TEST_CASE("wrong arguments of reports and tags are told", "[pressure]") {
  const SimulatedWeir weir;
  char text[4] = "old";
  CHECK(weir_oom_report(5, WEIR_REPORT_TEXT, text, sizeof(text)) == 0);
  CHECK(text[0] == '\0');
  CHECK(weir_last_status() == WEIR_ERROR_NO_DEVICE);
  CHECK(weir_oom_report(0, 7, nullptr, 0) == 0);
  CHECK(weir_last_status() == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(weir_push_tag(nullptr) == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(weir_pop_tag() == WEIR_ERROR_INVALID_ARGUMENT);
}

TEST_CASE("a pool's limit is set through C and C++", "[pressure]") {
  if (IsPassthrough()) return;
  const SimulatedWeir weir;
  CapturePool pool(0);
  pool.SetLimit(40 * kMiB);
  {
    const CapturePool::Scope routed(pool);
    CHECK(weir_malloc(60 * kMiB) == nullptr);
    CHECK(ErrorSays("weir_pool_set_limit"));
    REQUIRE(weir_pool_set_limit(pool.get(), SIZE_MAX) == WEIR_OK);
    void* block = weir_malloc(60 * kMiB);
    CHECK(block != nullptr);
    CHECK(weir_free(block) == WEIR_OK);
  }
  CHECK(weir_pool_set_limit(12345, 1) == WEIR_ERROR_INVALID_ARGUMENT);
}

TEST_CASE("a fraction is of the device, whatever other processes hold (jax 4310, pytorch 58466)",
          "[pressure][reports]") {
  const SimulatedWeir weir;
  sim::SetOtherProcessBytes(0, 500 * kMiB);
  REQUIRE(weir_set_memory_fraction(0, 0.25) == WEIR_OK);
  CHECK(SimulatedWeir::Stats().memory_limit == kDeviceBytes / 4);
  void* block = weir_malloc(250 * kMiB);
  CHECK(block != nullptr);
  CHECK(weir_malloc(10 * kMiB) == nullptr);
  CHECK(SimulatedWeir::Stats().reserved_bytes <= kDeviceBytes / 4);
  CHECK(weir_free(block) == WEIR_OK);
  sim::SetOtherProcessBytes(0, 0);
  REQUIRE(weir_set_memory_limit(0, SIZE_MAX) == WEIR_OK);
}

TEST_CASE("statistics are there before anything was allocated (tensorflow 30736)",
          "[pressure][reports]") {  // tensorflow 48869, 50669
  const SimulatedWeir weir;
  weir_stats_t stats;
  CHECK(weir_get_stats(1, &stats) == WEIR_OK);
  CHECK(weir_get_stats(0, &stats) == WEIR_OK);
}

}  // namespace
}  // namespace weir::test
