#include "allocator/pool/unseen_holders.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdio>
#include <string_view>

namespace weir {
namespace {

// RDMA verbs, UCX, GDRCopy.
constexpr std::string_view kLibraries[] = {"libibverbs", "libucp", "libuct", "libgdrapi"};
// PyTorch is linked with NVSHMEM, whether the program uses it or not: it counts from its
// initialization on, which it can be asked about (nvshmemx.h, nvshmemx_init_status).
constexpr std::string_view kNvshmem = "libnvshmem_host";
constexpr const char* kNvshmemStatus = "nvshmemid_init_status";

// "/usr/lib/libibverbs.so.1" and "libibverbs-1a2b3c.so.1", as wheels have it, but not
// "libibverbsomething.so".
bool IsNamed(std::string_view file, std::string_view name) {
  return file.size() > name.size() && file.starts_with(name) &&
         std::string_view(".-_").find(file[name.size()]) != std::string_view::npos;
}
bool MayHoldPages(std::string_view file) {
  return std::any_of(std::begin(kLibraries), std::end(kLibraries),
                     [file](std::string_view name) { return IsNamed(file, name); });
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
constexpr size_t kMaxPath = 4096;
struct Search {
  char name[UnseenHolders::kMaxName] = {};  // a library that may hold pages
  char nvshmem[kMaxPath] = {};              // the path of NVSHMEM, if it is loaded
};
// The loader's texts may be gone when its list was left.
int FindLibraries(dl_phdr_info* info, size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  const std::string_view file = FileOf(info->dlpi_name);
  if (IsNamed(file, kNvshmem)) {
    std::string_view(info->dlpi_name).copy(search.nvshmem, kMaxPath - 1);
  } else if (MayHoldPages(file)) {
    file.copy(search.name, UnseenHolders::kMaxName - 1);
    return 1;
  }
  return 0;
}

}  // namespace

UnseenHolders& UnseenHolders::Get() {
  static UnseenHolders* const holders = new UnseenHolders();
  return *holders;
}

const char* UnseenHolders::Look() {
  if (found_.load(std::memory_order_acquire)) return name_;
  if (NvshmemStatus* status = nvshmem_status_.load(std::memory_order_acquire);
      status != nullptr && status() != 0) {
    return Found(kNvshmem);
  }
  uint64_t additions = 0;
  dl_iterate_phdr(&ReadAdditions, &additions);
  if (additions == additions_seen_.load(std::memory_order_acquire)) return nullptr;
  Search search;
  dl_iterate_phdr(&FindLibraries, &search);
  if (search.name[0] != '\0') return Found(search.name);
  if (search.nvshmem[0] != '\0' && nvshmem_status_.load() == nullptr) {
    // Stays open: the function is called for the life of the process.
    void* library = dlopen(search.nvshmem, RTLD_LAZY | RTLD_NOLOAD);
    void* function = library != nullptr ? dlsym(library, kNvshmemStatus) : nullptr;
    if (function == nullptr) return Found(kNvshmem);  // it cannot be asked
    auto* status = reinterpret_cast<NvshmemStatus*>(function);
    nvshmem_status_.store(status, std::memory_order_release);
    if (status() != 0) return Found(kNvshmem);
  }
  additions_seen_.store(additions, std::memory_order_release);
  return nullptr;
}

const char* UnseenHolders::Found(std::string_view name) {
  MutexLock lock(mu_);
  if (!found_.load(std::memory_order_relaxed)) {
    name.copy(name_, kMaxName - 1);
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
