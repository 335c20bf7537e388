// UnseenHolders: libraries of the process that may hold device pages without Weir's knowledge:
// they register addresses with a network card, which then reaches the physical memory that was
// mapped there at that time.
#ifndef WEIR_POOL_UNSEEN_HOLDERS_H_
#define WEIR_POOL_UNSEEN_HOLDERS_H_

#include <atomic>
#include <cstdint>
#include <string_view>

#include "allocator/base/mutex.h"

namespace weir {

class UnseenHolders {
 public:
  static UnseenHolders& Get();

  static constexpr size_t kMaxName = 64;

  // The file name of such a library if one is, or was, loaded; else nullptr. Asks the loader, whose
  // list of libraries is read again only if one was added since.
  const char* Look();
  // Says on stderr, once in the process, what follows from it.
  void Tell(const char* library);

 private:
  using NvshmemStatus = int();  // 0: not initialized

  const char* Found(std::string_view name);

  std::atomic<bool> found_{false};
  std::atomic<NvshmemStatus*> nvshmem_status_{nullptr};
  std::atomic<uint64_t> additions_seen_{0};  // the loader's count of libraries it ever added
  std::atomic<bool> told_{false};
  Mutex mu_;
  char name_[kMaxName] = {};  // written before found_, and not again
};

}  // namespace weir

#endif  // WEIR_POOL_UNSEEN_HOLDERS_H_
