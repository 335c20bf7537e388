// DeviceHeap::Sharing: memory of a heap that other devices and other processes use, and memory of
// other processes that this device uses. Not an object of its own: it has the functions of
// weir/share.h for one heap.
#ifndef WEIR_POOL_DEVICE_HEAP_SHARE_H_
#define WEIR_POOL_DEVICE_HEAP_SHARE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocator/pool/device_heap.h"
#include "weir/share.h"

namespace weir {

class DeviceHeap::Sharing {
 public:
  explicit Sharing(DeviceHeap& heap) : heap_(heap) {}

  HeapError EnablePeerAccess(int peer);
  HeapError Export(uint64_t address, uint64_t* handle_bytes, int* fds, size_t capacity,
                   weir_export_t* result);
  HeapError Unexport(uint64_t address);
  HeapError Import(const int* fds, const uint64_t* handle_bytes, size_t count, uint64_t* address);
  // WEIR_ERROR_NOT_OWNED: it is not of this heap.
  HeapError CloseImport(uint64_t address);

 private:
  struct Exported {
    uint64_t block = 0;
    ExportedBlock record = {};
    std::vector<Handle*> handles;  // in the order of addresses
  };
  // What of the heap is mapped, in ranges that do not touch.
  std::vector<AddressRange> MappedRanges() ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_.space_mu_);
  HeapError FindExported(uint64_t address, Exported* exported)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_.heap_mu_);
  DriverStatus MapImported(const int* fds, const uint64_t* handle_bytes, size_t count,
                           AddressRange range) ABSL_EXCLUSIVE_LOCKS_REQUIRED(heap_.space_mu_);

  DeviceHeap& heap_;
};

}  // namespace weir

#endif  // WEIR_POOL_DEVICE_HEAP_SHARE_H_
