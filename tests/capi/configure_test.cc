// How Weir starts: options of the environment and of weir_configure, and starts that fail. The pool
// of a process can be set up once, so each case runs in a child process of its own.
#include <dlfcn.h>

#include <string>

#include "tests/capi/in_child.h"
#include "tools/simcuda/simcuda.h"
#include "weir/weir.h"

using weir::test::InChild;

namespace {

bool ErrorSays(const char* part) {
  return std::string(weir_last_error()).find(part) != std::string::npos;
}

size_t TotalBytes() {
  size_t free = 0;
  size_t total = 0;
  return weir_mem_get_info(0, &free, &total) == WEIR_OK ? total : 0;
}

TEST_CASE("WEIR_CONF puts a program on the simulated device", "[configure]") {
  CHECK(InChild("device:sim,sim_memory:3GiB,sim_devices:4", nullptr, [] {
          int count = 0;
          EXPECT_IN_CHILD(weir_device_count(&count) == WEIR_OK && count == 4);
          EXPECT_IN_CHILD(TotalBytes() == size_t{3} << 30);
          return 0;
        }) == 0);
}

TEST_CASE("an unknown option makes every function fail with the list of options", "[configure]") {
  CHECK(InChild("device:sim,sim_mem:1GiB", nullptr, [] {
          for (int i = 0; i < 2; ++i) {
            EXPECT_IN_CHILD(weir_malloc(100) == nullptr);
            EXPECT_IN_CHILD(weir_last_status() == WEIR_ERROR_CONFIGURATION);
            EXPECT_IN_CHILD(ErrorSays("WEIR_CONF: unknown option 'sim_mem'"));
            EXPECT_IN_CHILD(ErrorSays("sim_memory:BYTES"));
            EXPECT_IN_CHILD(ErrorSays("small blocks a thread keeps of one stream"));  // the last
          }
          int count = 0;
          weir_stats_t stats;
          EXPECT_IN_CHILD(weir_device_count(&count) == WEIR_ERROR_CONFIGURATION);
          EXPECT_IN_CHILD(weir_set_device(0) == WEIR_ERROR_CONFIGURATION);
          EXPECT_IN_CHILD(weir_get_stats(0, &stats) == WEIR_ERROR_CONFIGURATION);
          EXPECT_IN_CHILD(weir_configure("device:sim") == WEIR_ERROR_CONFIGURATION);
          // Nothing was ever allocated.
          EXPECT_IN_CHILD(weir_free(&count) == WEIR_ERROR_NOT_OWNED);
          EXPECT_IN_CHILD(weir_verify() == WEIR_OK);
          return 0;
        }) == 0);
}

TEST_CASE("weir_configure wins over the environment, later over earlier", "[configure]") {
  CHECK(InChild("device:sim,sim_memory:1GiB,sim_devices:2", nullptr, [] {
          EXPECT_IN_CHILD(weir_configure("sim_memory:2GiB,vmm:off") == WEIR_OK);
          EXPECT_IN_CHILD(weir_configure("sim_memory:4GiB") == WEIR_OK);
          int count = 0;
          EXPECT_IN_CHILD(weir_device_count(&count) == WEIR_OK && count == 2);
          EXPECT_IN_CHILD(TotalBytes() == size_t{4} << 30);
          EXPECT_IN_CHILD(weir_malloc(100) != nullptr);
          EXPECT_IN_CHILD(weir::sim::CallCount("cuMemCreate") == 0);
          return 0;
        }) == 0);
}

TEST_CASE("after the first use the options stand", "[configure]") {
  CHECK(InChild("device:sim", nullptr, [] {
          void* block = weir_malloc(100);
          EXPECT_IN_CHILD(block != nullptr);
          EXPECT_IN_CHILD(weir_configure("vmm:off") == WEIR_ERROR_CONFIGURATION);
          EXPECT_IN_CHILD(ErrorSays("in use already"));
          EXPECT_IN_CHILD(weir_free(block) == WEIR_OK);
          return 0;
        }) == 0);
}

TEST_CASE("wrong options change nothing", "[configure]") {
  CHECK(InChild(nullptr, nullptr, [] {
          EXPECT_IN_CHILD(weir_configure(nullptr) == WEIR_ERROR_INVALID_ARGUMENT);
          EXPECT_IN_CHILD(weir_configure("device:sim,colour:red") == WEIR_ERROR_CONFIGURATION);
          EXPECT_IN_CHILD(weir_configure("device:sim,sim_memory:1GiB") == WEIR_OK);
          EXPECT_IN_CHILD(weir_configure("sim_memory:much") == WEIR_ERROR_CONFIGURATION);
          EXPECT_IN_CHILD(TotalBytes() == size_t{1} << 30);
          return 0;
        }) == 0);
}

TEST_CASE("without a driver every function says so, and the simulated device can still be chosen",
          "[configure]") {
  if (void* real = dlopen("libcuda.so.1", RTLD_NOW)) {
    dlclose(real);
    return;  // there is a driver here
  }
  CHECK(InChild(nullptr, nullptr, [] {
          for (int i = 0; i < 2; ++i) {
            EXPECT_IN_CHILD(weir_malloc(100) == nullptr);
            EXPECT_IN_CHILD(weir_last_status() == WEIR_ERROR_NO_DEVICE);
            EXPECT_IN_CHILD(ErrorSays("libcuda.so.1"));
            EXPECT_IN_CHILD(ErrorSays("WEIR_CONF=device:sim"));
          }
          EXPECT_IN_CHILD(weir_configure("device:sim") == WEIR_OK);
          EXPECT_IN_CHILD(weir_malloc(100) != nullptr);
          return 0;
        }) == 0);
}

TEST_CASE("WEIR_DISABLE sends every request to the driver", "[configure]") {
  CHECK(InChild("device:sim", "1", [] {
          void* first = weir_malloc(100);
          void* second = weir_malloc_async(5000, nullptr);
          EXPECT_IN_CHILD(first != nullptr && second != nullptr);
          EXPECT_IN_CHILD(weir::sim::CallCount("cuMemAlloc") == 2);
          EXPECT_IN_CHILD(weir::sim::CallCount("cuMemCreate") == 0);
          EXPECT_IN_CHILD(weir_usable_size(first) == 100);
          EXPECT_IN_CHILD(weir_free(first) == WEIR_OK);
          EXPECT_IN_CHILD(weir_free_async(second, nullptr) == WEIR_OK);
          EXPECT_IN_CHILD(weir::sim::CallCount("cuMemFree") == 2);
          return 0;
        }) == 0);
}

TEST_CASE("compacting tells what is held in passthrough too, and refuses options it does not know",
          "[configure]") {
  CHECK(InChild("device:sim,mode:passthrough", nullptr, [] {
          weir_compact_result_t result{};
          EXPECT_IN_CHILD(weir_compact(0, nullptr, &result) == WEIR_OK);  // not in use
          EXPECT_IN_CHILD(result.reserved_bytes == 0);
          EXPECT_IN_CHILD(weir_malloc(5000) != nullptr);
          EXPECT_IN_CHILD(weir_compact(0, nullptr, &result) == WEIR_OK);
          EXPECT_IN_CHILD(result.reserved_bytes == 5000);
          EXPECT_IN_CHILD(weir_compact(0, nullptr, nullptr) == WEIR_OK);
          EXPECT_IN_CHILD(weir_compact(1, nullptr, &result) == WEIR_ERROR_NO_DEVICE);
          weir_compact_options_t options{};
          EXPECT_IN_CHILD(weir_compact(0, &options, &result) == WEIR_OK);
          options.unused_[3] = 1;  // of a later version
          EXPECT_IN_CHILD(weir_compact(0, &options, &result) == WEIR_ERROR_INVALID_ARGUMENT);
          return 0;
        }) == 0);
}

TEST_CASE("a simulated device that cannot be made is told so", "[configure]") {
  for (const char* conf : {"device:sim,sim_memory:1MiB", "device:sim,sim_memory:1000TiB"}) {
    CHECK(InChild(conf, nullptr, [] {
            EXPECT_IN_CHILD(weir_malloc(100) == nullptr);
            EXPECT_IN_CHILD(ErrorSays("option sim_memory"));
            return 0;
          }) == 0);
  }
  CHECK(InChild("device:sim,sim_devices:16", nullptr, [] {
          int count = 0;
          EXPECT_IN_CHILD(weir_device_count(&count) == WEIR_OK);
          EXPECT_IN_CHILD(count == 16);
          return 0;
        }) == 0);
}

TEST_CASE("the memory limit can be a fraction of each device", "[configure]") {
  CHECK(InChild("device:sim,sim_memory:1GiB,memory_limit:0.25", nullptr, [] {
          void* block = weir_malloc(size_t{200} << 20);
          EXPECT_IN_CHILD(block != nullptr);
          EXPECT_IN_CHILD(weir_malloc(size_t{100} << 20) == nullptr);
          EXPECT_IN_CHILD(weir_last_status() == WEIR_ERROR_OUT_OF_MEMORY);
          weir_stats_t stats;
          EXPECT_IN_CHILD(weir_get_stats(0, &stats) == WEIR_OK);
          EXPECT_IN_CHILD(stats.memory_limit == size_t{256} << 20);
          return 0;
        }) == 0);
}

TEST_CASE("memory that is freed while the process ends is no error", "[configure]") {
  const char* conf = GENERATE("device:sim", "device:sim,vmm:off", "device:sim,mode:passthrough");
  INFO(conf);
  CHECK(InChild(conf, nullptr, [] {
          void* block = weir_malloc(100);
          void* large = weir_malloc(size_t{8} << 20);
          EXPECT_IN_CHILD(block != nullptr && large != nullptr);
          weir::sim::Deinitialize();
          EXPECT_IN_CHILD(weir_free(block) == WEIR_OK);
          EXPECT_IN_CHILD(weir_free(large) == WEIR_OK);
          return 0;
        }) == 0);
}

}  // namespace
