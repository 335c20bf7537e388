#include "allocator/pool/unseen_holders.h"

#include <link.h>

#include <algorithm>
#include <cstdio>
#include <string_view>

namespace weir {
namespace {

// RDMA verbs, UCX, NVSHMEM, GDRCopy.
constexpr std::string_view kLibraries[] = {"libibverbs", "libucp", "libuct", "libnvshmem_host",
                                           "libgdrapi"};

// "/usr/lib/libibverbs.so.1" and "libibverbs-1a2b3c.so.1", as wheels have it, but not
// "libibverbsomething.so".
bool MayHoldPages(std::string_view file) {
  return std::any_of(std::begin(kLibraries), std::end(kLibraries), [file](std::string_view name) {
    return file.size() > name.size() && file.starts_with(name) &&
           std::string_view(".-_").find(file[name.size()]) != std::string_view::npos;
  });
}

std::string_view FileOf(const char* path) {
  std::string_view name = path == nullptr ? "" : path;
  return name.substr(name.rfind('/') + 1);  // npos + 1 is 0
}

// The loader's lock is held while these run: they allocate nothing.
int ReadAdditions(dl_phdr_info* info, size_t, void* additions) {
  *static_cast<uint64_t*>(additions) = info->dlpi_adds;
  return 1;  // it is the same for all
}
int FindLibrary(dl_phdr_info* info, size_t, void* found) {
  const std::string_view file = FileOf(info->dlpi_name);
  if (!MayHoldPages(file)) return 0;
  *static_cast<std::string_view*>(found) = file;
  return 1;
}

}  // namespace

UnseenHolders& UnseenHolders::Get() {
  static UnseenHolders* const holders = new UnseenHolders();
  return *holders;
}

const char* UnseenHolders::Look() {
  if (found_.load(std::memory_order_acquire)) return name_;
  uint64_t additions = 0;
  dl_iterate_phdr(&ReadAdditions, &additions);
  if (additions == additions_seen_.load(std::memory_order_acquire)) return nullptr;
  struct Search {
    char name[kMaxName] = {};
  } search;
  const int found = dl_iterate_phdr(
      [](dl_phdr_info* info, size_t size, void* data) {
        std::string_view file;
        if (FindLibrary(info, size, &file) == 0) return 0;
        // The loader's text may be gone when this returns.
        file.copy(static_cast<Search*>(data)->name, kMaxName - 1);
        return 1;
      },
      &search);
  if (found == 0) {
    additions_seen_.store(additions, std::memory_order_release);
    return nullptr;
  }
  MutexLock lock(mu_);
  if (!found_.load(std::memory_order_relaxed)) {
    std::copy(std::begin(search.name), std::end(search.name), name_);
    found_.store(true, std::memory_order_release);
  }
  return name_;
}

void UnseenHolders::Tell(const char* library) {
  if (told_.exchange(true)) return;
  std::fprintf(
      stderr,
      "weir: %s is loaded and may register device memory without Weir's knowledge, so idle "
      "memory is neither moved nor given back by itself. If the program pins what it "
      "registers (weir_pin_range) or registers nothing, set the option compaction:on; or "
      "follow Weir's changes with weir_observe_remap\n",
      library);
}

}  // namespace weir
