// What a forked child may do with Weir: nothing, but without harm. A program of its own, because it
// begins before Weir is used.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <random>
#include <thread>
#include <vector>

#include "tests/capi/simulated_weir.h"
#include "tests/support/seed.h"
#include "weir/inspect.h"

namespace weir::test {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kForks = 40;  // each child is slow
#else
constexpr int kForks = 1000;
#endif

#define EXPECT_OR_RETURN(condition)    \
  do {                                 \
    if (!(condition)) return __LINE__; \
  } while (false)

// Objects that outlive main free memory of the parent, as those of a program do.
struct FreesAtExit {
  std::vector<void*> blocks;
  ~FreesAtExit() {
    for (void* block : blocks) {
      if (weir_free_ordered(block) != WEIR_OK || weir_free(block) != WEIR_OK) _exit(99);
    }
  }
};

// Runs body in a child that ends through exit(). Its line that failed; 0: none; -1: it hung.
template <typename Body>
int InForked(Body body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(60);  // kills a child that waits for a lock
    const int line = body();
    if (line != 0) std::fprintf(stderr, "line %d; last error: %s\n", line, weir_last_error());
    std::exit(line == 0 ? 0 : 1 + line % 90);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool FailsAsForked(int code) {
  return code == WEIR_ERROR_DRIVER && weir_last_status() == WEIR_ERROR_DRIVER &&
         std::string(weir_last_error()).find("forked") != std::string::npos;
}

int UseInChild(const std::vector<void*>& blocks, weir_stream_t stream, weir_pool_t pool) {
  for (void* block : blocks) {
    EXPECT_OR_RETURN(weir_record_use(block, nullptr) == WEIR_OK);
    EXPECT_OR_RETURN(weir_usable_size(block) == 0);
    EXPECT_OR_RETURN(weir_free_async(block, stream) == WEIR_OK);
    EXPECT_OR_RETURN(weir_free_ordered(block) == WEIR_OK);
    EXPECT_OR_RETURN(weir_free(block) == WEIR_OK);
  }
  for (size_t bytes : {size_t{1}, size_t{4096}, size_t{40000}, 3 * kMiB}) {
    EXPECT_OR_RETURN(weir_malloc_async(bytes, stream) == nullptr);
    EXPECT_OR_RETURN(FailsAsForked(weir_last_status()));
    EXPECT_OR_RETURN(weir_malloc_async_device(bytes, 0, stream) == nullptr);
    EXPECT_OR_RETURN(weir_malloc(bytes) == nullptr);
    EXPECT_OR_RETURN(weir_calloc(bytes, 2) == nullptr);
  }
  weir_stats_t stats;
  weir_size_stats_t small, large;
  size_t free_bytes = 0, total = 0;
  int number = 0;
  weir_pool_t made = 0;
  EXPECT_OR_RETURN(FailsAsForked(weir_get_stats(0, &stats)));
  EXPECT_OR_RETURN(FailsAsForked(weir_get_size_stats(0, &small, &large)));
  EXPECT_OR_RETURN(FailsAsForked(weir_mem_get_info(0, &free_bytes, &total)));
  EXPECT_OR_RETURN(FailsAsForked(weir_device_count(&number)));
  EXPECT_OR_RETURN(FailsAsForked(weir_set_device(0)));
  EXPECT_OR_RETURN(FailsAsForked(weir_get_device(&number)));
  EXPECT_OR_RETURN(FailsAsForked(weir_empty_cache(0)));
  EXPECT_OR_RETURN(FailsAsForked(weir_trim(0, 0)));
  EXPECT_OR_RETURN(FailsAsForked(weir_compact(0, nullptr, nullptr)));
  EXPECT_OR_RETURN(FailsAsForked(weir_preallocate(0, 1)));
  EXPECT_OR_RETURN(FailsAsForked(weir_would_fit(0, 1, nullptr, &number, nullptr)));
  EXPECT_OR_RETURN(FailsAsForked(weir_verify()));
  EXPECT_OR_RETURN(FailsAsForked(weir_configure("")));
  EXPECT_OR_RETURN(FailsAsForked(weir_push_tag("tag")));
  EXPECT_OR_RETURN(FailsAsForked(weir_pool_create(0, &made)));
  EXPECT_OR_RETURN(FailsAsForked(weir_pool_begin(pool)));
  EXPECT_OR_RETURN(FailsAsForked(weir_find_block(blocks[0], nullptr, nullptr)));
  EXPECT_OR_RETURN(FailsAsForked(weir_memset(blocks[0], 0, 1)));
  EXPECT_OR_RETURN(FailsAsForked(weir_pin_range(blocks[0], 1)));
  EXPECT_OR_RETURN(weir_oom_report(0, WEIR_REPORT_TEXT, nullptr, 0) == 0);
  EXPECT_OR_RETURN(weir_unpin_range(blocks[0], 1) == WEIR_OK);
  EXPECT_OR_RETURN(weir_pop_tag() == WEIR_OK);
  EXPECT_OR_RETURN(weir_pool_end(pool) == WEIR_OK);
  EXPECT_OR_RETURN(weir_pool_release(pool) == WEIR_OK);
  EXPECT_OR_RETURN(weir_stream_destroyed(stream) == WEIR_OK);
  return 0;
}

std::string SimulatedOptions() {
  return "device:sim,sim_devices:2,sim_memory:1GiB," + TestOptions();
}

TEST_CASE("a child of a process that has only configured Weir can use it", "[fork]") {
  const auto use = [](int configured) {
    EXPECT_OR_RETURN(configured == WEIR_OK);
    void* block = weir_malloc(1000);
    EXPECT_OR_RETURN(block != nullptr);
    EXPECT_OR_RETURN(weir_free(block) == WEIR_OK);
    return 0;
  };
  // In a child, so that the parent can be set up by the next test.
  CHECK(InForked([&] {
          const int configured = weir_configure(SimulatedOptions().c_str());
          int line = -1;
          const pid_t child = fork();
          if (child == 0) _exit(use(configured) == 0 ? 0 : 1);
          EXPECT_OR_RETURN(waitpid(child, &line, 0) == child);
          return WIFEXITED(line) ? WEXITSTATUS(line) : 1;
        }) == 0);
}

TEST_CASE("children that are forked while threads allocate do nothing, fail clearly, and end",
          "[fork]") {
  const uint64_t seed = Seed();
  const SimulatedWeir weir;
  const weir_stream_t stream = NewStream();
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(seed + t);
      std::vector<void*> live;
      while (!done) {
        const size_t bytes = random() % (size_t{1} << (random() % 23));
        live.push_back(random() % 4 == 0 ? weir_malloc(bytes) : weir_malloc_async(bytes, stream));
        if (live.back() == nullptr) ++wrong;
        if (random() % 512 == 0 && weir_empty_cache(0) != WEIR_OK) ++wrong;
        while (live.size() > 50) {
          std::swap(live[random() % live.size()], live.back());
          if (weir_free_ordered(live.back()) != WEIR_OK) ++wrong;
          live.pop_back();
        }
      }
      for (void* block : live) {
        if (weir_free_ordered(block) != WEIR_OK) ++wrong;
      }
    });
  }
  weir_pool_t pool = 0;
  if (!IsPassthrough()) REQUIRE(weir_pool_create(0, &pool) == WEIR_OK);
  std::vector<void*> blocks;
  for (size_t bytes : kSizes) blocks.push_back(weir_malloc_async(bytes, stream));
  blocks.push_back(weir_malloc(5000));
  int failed = 0;
  for (int i = 0; i < kForks && failed == 0; ++i) {
    // Something lies in the thread's cache.
    REQUIRE(weir_free_async(weir_malloc_async(4096, stream), stream) == WEIR_OK);
    failed = InForked([&] {
      static FreesAtExit at_exit;
      at_exit.blocks = blocks;
      return UseInChild(blocks, stream, pool);
    });
  }
  CHECK(failed == 0);
  // A child's child is no better off.
  CHECK(InForked([&] {
          const pid_t child = fork();
          if (child == 0) _exit(UseInChild(blocks, stream, pool) == 0 ? 0 : 1);
          int status = 0;
          EXPECT_OR_RETURN(waitpid(child, &status, 0) == child);
          return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        }) == 0);
  done = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  // In the parent nothing has changed.
  for (void* block : blocks) CHECK(weir_free_ordered(block) == WEIR_OK);
  if (!IsPassthrough()) REQUIRE(weir_pool_release(pool) == WEIR_OK);
}

}  // namespace
}  // namespace weir::test
