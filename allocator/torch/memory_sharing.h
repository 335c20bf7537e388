// MemorySharing: memory that goes to, and comes from, other processes of PyTorch.
//
// The text that describes shared memory is PyTorch's own, so that either side may be without Weir:
// a byte for the version, a byte for the kind, then
//   'c'  the 64 bytes of cudaIpcGetMemHandle, for memory that is not mapped page by page
//   'e'  process, bytes of each handle, count; then a file descriptor of that process for each
//   'w'  as 'e', then the bytes of each handle: only Weir reads it (handles of several sizes)
#ifndef WEIR_TORCH_MEMORY_SHARING_H_
#define WEIR_TORCH_MEMORY_SHARING_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "torch_names.h"

namespace weir::torch_plugin {

class MemorySharing {
 public:
  bool has_exports() const { return has_exports_.load(std::memory_order_relaxed); }
  // Describes the memory for another process, and keeps it where it is until OnFree.
  ShareableHandle Share(void* ptr);
  // A block of ours is being freed. PyTorch does so when nobody else uses it any more.
  void OnFree(void* ptr);
  // Memory of another process at an address of this one; one mapping for equal handles.
  std::shared_ptr<void> Open(const std::string& handle, DeviceIndex device);

 private:
  struct Export {
    std::vector<int> descriptors;  // open until the block is freed: importers come when they like
    ShareableHandle handle;
  };

  void* Map(const std::string& handle, DeviceIndex device, bool* is_classic);
  void Close(const std::string& handle, void* ptr, DeviceIndex device, bool is_classic);

  std::atomic<bool> has_exports_{false};
  std::mutex mu_;
  std::condition_variable closed_;
  std::map<uint64_t, Export> exports_;  // by the block's address
  std::map<std::string, std::weak_ptr<void>> imports_;
};

}  // namespace weir::torch_plugin

#endif  // WEIR_TORCH_MEMORY_SHARING_H_
