// Libraries that may hold device pages without Weir's knowledge: while one is loaded, and nobody
// follows Weir's changes, memory stays where it is. A library counts for the life of the process,
// so each case runs in a child.
#include <dlfcn.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/capi/in_child.h"
#include "tools/simcuda/simcuda.h"

namespace weir::test {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

weir_stats_t Stats() {
  weir_stats_t stats{};
  weir_get_stats(0, &stats);
  return stats;
}

bool LoadLibrary() { return dlopen(WEIR_TEST_IBVERBS, RTLD_NOW) != nullptr; }

// What the process says on stderr from here on goes to a file.
class Captured {
 public:
  Captured() : path_("/tmp/weir_unseen_" + std::to_string(getpid())) {
    std::fflush(stderr);
    if (std::freopen(path_.c_str(), "w", stderr) == nullptr) std::abort();
  }
  ~Captured() { std::remove(path_.c_str()); }
  std::string Text() const {
    std::fflush(stderr);
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  const std::string path_;
};

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// 40 MiB that a peer registered lie idle, of the device's 128: a second request for 60 MiB needs
// them.
struct Squeeze {
  bool peer_kept = true;
  bool served = false;
};
Squeeze Run() {
  Squeeze result;
  void* registered = weir_malloc_async(40 * kMiB, nullptr);
  const sim::Peer peer(reinterpret_cast<uintptr_t>(registered), 40 * kMiB);
  weir_free_async(registered, nullptr);
  void* first = weir_malloc(60 * kMiB);
  void* second = weir_malloc(60 * kMiB);
  result.served = second != nullptr;
  result.peer_kept = peer.StillMapped();
  weir_free(first);
  weir_free(second);
  return result;
}

// Mappings and unmappings, in two ints.
void CountRemap(int, void*, size_t, int event, void* user) {
  static_cast<int*>(user)[event == WEIR_REMAP_BEFORE_UNMAP] += 1;
}

constexpr const char* kSim = "device:sim,sim_memory:128MiB,thread_cache:0";

TEST_CASE("memory moves while no library is loaded that may hold it unseen", "[holders]") {
  CHECK(InChild(kSim, nullptr, [] {
          const Squeeze squeeze = Run();
          EXPECT_IN_CHILD(squeeze.served && !squeeze.peer_kept);
          EXPECT_IN_CHILD(Stats().grow_only == 0 && Stats().remapped_bytes > 0);
          return 0;
        }) == 0);
}

TEST_CASE("memory stays where it is once a library may hold it unseen", "[holders]") {
  for (const char* more : {"", ",idle_decay:0.000000001,release_threshold:0", ",stitch:on"}) {
    INFO(more);
    CHECK(InChild((std::string(kSim) + more).c_str(), nullptr, [] {
            EXPECT_IN_CHILD(weir_free(weir_malloc(100)) == WEIR_OK);  // loaded after the start
            EXPECT_IN_CHILD(Stats().grow_only == 0);
            EXPECT_IN_CHILD(LoadLibrary());
            const Squeeze squeeze = Run();
            EXPECT_IN_CHILD(squeeze.peer_kept && !squeeze.served);
            EXPECT_IN_CHILD(weir_last_status() == WEIR_ERROR_OUT_OF_MEMORY);
            EXPECT_IN_CHILD(Stats().grow_only == 1 && Stats().remapped_bytes == 0);
            std::string report(weir_oom_report(0, WEIR_REPORT_TEXT, nullptr, 0), ' ');
            weir_oom_report(0, WEIR_REPORT_TEXT, report.data(), report.size() + 1);
            EXPECT_IN_CHILD(report.find("but memory is not moved") != std::string::npos);
            EXPECT_IN_CHILD(report.find("compaction:on") != std::string::npos);
            EXPECT_IN_CHILD(weir_verify() == WEIR_OK);
            // The program may know better.
            EXPECT_IN_CHILD(weir_empty_cache(0) == WEIR_OK);
            EXPECT_IN_CHILD(Stats().reserved_bytes == 0);
            EXPECT_IN_CHILD(weir_free(weir_malloc(120 * kMiB)) == WEIR_OK);
            return 0;
          }) == 0);
  }
}

TEST_CASE("that memory stays is told once, with the library's name and what to do", "[holders]") {
  CHECK(InChild(kSim, nullptr, [] {
          const Captured captured;
          EXPECT_IN_CHILD(LoadLibrary());
          Run();
          Run();
          Stats();
          const std::string text = captured.Text();
          EXPECT_IN_CHILD(Count(text, "weir: ") == 1);
          EXPECT_IN_CHILD(Count(text, "libibverbs.so.1") == 1);
          EXPECT_IN_CHILD(Count(text, "compaction:on") == 1);
          EXPECT_IN_CHILD(Count(text, "weir_observe_remap") == 1);
          return 0;
        }) == 0);
}

TEST_CASE("a program that vouches for its memory has it moved", "[holders]") {
  CHECK(InChild((std::string(kSim) + ",compaction:on").c_str(), nullptr, [] {
          const Captured captured;
          EXPECT_IN_CHILD(LoadLibrary());
          const Squeeze squeeze = Run();
          EXPECT_IN_CHILD(squeeze.served && !squeeze.peer_kept);
          EXPECT_IN_CHILD(Stats().grow_only == 0);
          EXPECT_IN_CHILD(captured.Text().empty());
          return 0;
        }) == 0);
}

TEST_CASE("while an observer follows Weir's changes memory is moved", "[holders]") {
  CHECK(InChild(kSim, nullptr, [] {
          EXPECT_IN_CHILD(LoadLibrary());
          int events[2] = {};
          EXPECT_IN_CHILD(weir_observe_remap(CountRemap, events) == WEIR_OK);
          EXPECT_IN_CHILD(Stats().grow_only == 0);
          EXPECT_IN_CHILD(Run().served);
          EXPECT_IN_CHILD(events[0] > 0 && events[1] > 0);
          EXPECT_IN_CHILD(weir_unobserve_remap(CountRemap, events) == WEIR_OK);
          EXPECT_IN_CHILD(Stats().grow_only == 1);
          return 0;
        }) == 0);
}

TEST_CASE("NVSHMEM counts once it is initialized, for PyTorch is linked with it", "[holders]") {
  CHECK(InChild(kSim, nullptr, [] {
          const Captured captured;
          void* library = dlopen(WEIR_TEST_NVSHMEM, RTLD_NOW);
          EXPECT_IN_CHILD(library != nullptr);
          const Squeeze before = Run();
          EXPECT_IN_CHILD(before.served && !before.peer_kept);
          EXPECT_IN_CHILD(Stats().grow_only == 0 && captured.Text().empty());
          reinterpret_cast<void (*)()>(dlsym(library, "weir_test_initialize"))();
          EXPECT_IN_CHILD(weir_empty_cache(0) == WEIR_OK);
          const Squeeze after = Run();
          EXPECT_IN_CHILD(after.peer_kept && !after.served);
          EXPECT_IN_CHILD(Stats().grow_only == 1);
          EXPECT_IN_CHILD(Count(captured.Text(), "libnvshmem_host") == 1);
          return 0;
        }) == 0);
}

TEST_CASE("who only watches Weir's changes does not vouch for memory", "[holders]") {
  CHECK(InChild(kSim, nullptr, [] {
          EXPECT_IN_CHILD(LoadLibrary());
          int events[2] = {};
          EXPECT_IN_CHILD(weir_watch_remap(CountRemap, events) == WEIR_OK);
          EXPECT_IN_CHILD(!Run().served && Stats().grow_only == 1);
          EXPECT_IN_CHILD(events[0] > 0 && events[1] == 0);
          EXPECT_IN_CHILD(weir_empty_cache(0) == WEIR_OK);
          EXPECT_IN_CHILD(events[1] == events[0]);
          EXPECT_IN_CHILD(weir_unwatch_remap(CountRemap, events) == WEIR_OK);
          EXPECT_IN_CHILD(weir_unwatch_remap(CountRemap, events) == WEIR_ERROR_INVALID_ARGUMENT);
          EXPECT_IN_CHILD(weir_watch_remap(nullptr, nullptr) == WEIR_ERROR_INVALID_ARGUMENT);
          return 0;
        }) == 0);
}

TEST_CASE("compaction:off keeps memory where it is whatever is loaded", "[holders]") {
  CHECK(InChild((std::string(kSim) + ",compaction:off").c_str(), nullptr, [] {
          const Captured captured;
          const Squeeze squeeze = Run();
          EXPECT_IN_CHILD(squeeze.peer_kept && !squeeze.served);
          EXPECT_IN_CHILD(Stats().grow_only == 1);
          EXPECT_IN_CHILD(captured.Text().empty());
          return 0;
        }) == 0);
}

TEST_CASE("segments too are given back of itself only if nobody may hold them", "[holders]") {
  const std::string conf = std::string(kSim) + ",vmm:off";
  CHECK(InChild(conf.c_str(), nullptr, [] {
          const Squeeze squeeze = Run();
          EXPECT_IN_CHILD(!squeeze.peer_kept);
          EXPECT_IN_CHILD(Stats().grow_only == 1);  // nothing can be moved
          return 0;
        }) == 0);
  CHECK(InChild(conf.c_str(), nullptr, [] {
          EXPECT_IN_CHILD(LoadLibrary());
          const Squeeze squeeze = Run();
          EXPECT_IN_CHILD(squeeze.peer_kept && !squeeze.served);
          EXPECT_IN_CHILD(weir_empty_cache(0) == WEIR_OK);
          EXPECT_IN_CHILD(Stats().reserved_bytes == 0);
          return 0;
        }) == 0);
}

TEST_CASE("weir_empty_cache leaves pinned memory where it is", "[holders]") {
  CHECK(InChild(kSim, nullptr, [] {
          EXPECT_IN_CHILD(LoadLibrary());
          void* block = weir_malloc(20 * kMiB);
          EXPECT_IN_CHILD(weir_pin_range(block, 20 * kMiB) == WEIR_OK);
          const sim::Peer peer(reinterpret_cast<uintptr_t>(block), 20 * kMiB);
          weir_free(block);
          EXPECT_IN_CHILD(weir_empty_cache(0) == WEIR_OK);
          EXPECT_IN_CHILD(peer.StillMapped());
          EXPECT_IN_CHILD(weir_unpin_range(block, 20 * kMiB) == WEIR_OK);
          return 0;
        }) == 0);
}

}  // namespace
}  // namespace weir::test
