// AddressSpace: the software page table. It knows every address range that means something to a
// device (mappings of handles, classic, pool and managed memory, pinned and registered host
// memory), what physical memory is behind it and which devices may use it. One address space for
// all devices and the host (unified addressing). Reservations without a mapping are known too.
//
// Under the simulator's lock. Argument rules of the driver are checked by the *_entries.cc files;
// the functions here only check what they need for their own consistency.
#ifndef WEIR_TOOLS_SIMCUDA_ADDRESS_SPACE_H_
#define WEIR_TOOLS_SIMCUDA_ADDRESS_SPACE_H_

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/btree_map.h"
#include "tools/simcuda/address_windows.h"
#include "tools/simcuda/operation.h"
#include "tools/simcuda/physical_memory.h"

namespace weir::sim {

// Which devices may read and write: one bit per device ordinal.
struct AccessRights {
  uint32_t read = 0;
  uint32_t write = 0;

  bool Allows(int device, bool for_write) const {
    return (((for_write ? write : read) >> device) & 1) != 0;
  }
  void Set(int device, CUmemAccess_flags flags);
  CUmemAccess_flags Get(int device) const;
};

enum class RangeKind { kMapping, kClassic, kOpened, kManaged, kPool, kPinned, kRegistered };

// Of classic memory of another process, opened here.
struct OpenedHandle {
  CUipcMemHandle handle;
  uint64_t opens = 1;
};

struct Pool;

// A range that translates. Ranges never overlap.
struct Range {
  CUdeviceptr base = 0;
  uint64_t bytes = 0;
  RangeKind kind = RangeKind::kClassic;
  int device = -1;  // that owns it; -1 for host memory, the allocating device for managed memory
  std::shared_ptr<Store> store;
  uint64_t buffer_id = 0;                   // never used again
  CUmemGenericAllocationHandle handle = 0;  // kMapping
  CUdeviceptr reservation = 0;              // kMapping: base of the reservation it lies in
  unsigned int host_flags = 0;              // kPinned, kRegistered
  Pool* pool = nullptr;                     // kPool
  std::unique_ptr<OpenedHandle> opened;     // kOpened
  bool free_queued = false;                 // kPool: cuMemFreeAsync was called
  bool sync_memops = false;
  // kMapping: rights by parts, ordered; each part ends at this offset, the last at `bytes`.
  struct Part {
    uint64_t end;
    AccessRights rights;
  };
  std::vector<Part> parts;

  bool is_host() const { return kind == RangeKind::kPinned || kind == RangeKind::kRegistered; }
};

class AddressSpace : public AddressTranslator {
 public:
  void Clear();

  // Device addresses without meaning yet, for classic and pool memory; 0 if there are none.
  CUdeviceptr TakeAddresses(uint64_t bytes) { return windows_.Allocate(bytes, 0, 0); }
  void GiveAddresses(CUdeviceptr base, uint64_t bytes) { windows_.Free(base, bytes); }

  // Reservations. 0 if there is no address space for it.
  CUdeviceptr Reserve(uint64_t bytes, uint64_t alignment, CUdeviceptr hint);
  void Unreserve(CUdeviceptr base);
  // The reservation that contains the address: false if none does.
  bool FindReservation(CUdeviceptr address, CUdeviceptr* base, uint64_t* bytes) const;

  // base, bytes, kind, device and store must be set. The range must overlap no other.
  Range* Add(std::unique_ptr<Range> range);
  void Remove(CUdeviceptr base);
  // The range that contains the address, or null.
  Range* Find(CUdeviceptr address) const;
  bool Overlaps(CUdeviceptr base, uint64_t bytes) const;
  // Calls visit(Range&) in order for each range that overlaps [base, base + bytes).
  template <typename Visit>
  void ForEachIn(CUdeviceptr base, uint64_t bytes, Visit visit) const {
    for (auto it = FirstIn(base); it != ranges_.end() && it->first < base + bytes; ++it) {
      visit(*it->second);
    }
  }
  // Bases of all ranges for which the predicate holds.
  template <typename Predicate>
  std::vector<CUdeviceptr> Select(Predicate predicate) const {
    std::vector<CUdeviceptr> bases;
    for (const auto& [base, range] : ranges_) {
      if (predicate(*range)) bases.push_back(base);
    }
    return bases;
  }
  // Whether whole ranges of kind kMapping tile [base, base + bytes) exactly.
  bool IsTiledByMappings(CUdeviceptr base, uint64_t bytes) const;
  // Whether every byte of [base, base + bytes) is in a kMapping range.
  bool IsMapped(CUdeviceptr base, uint64_t bytes) const;
  // Sets the rights of a device over a part of mapped ranges.
  void SetRights(CUdeviceptr base, uint64_t bytes, int device, CUmemAccess_flags flags);
  AccessRights RightsAt(const Range& range, CUdeviceptr address) const;

  // Peer access to classic memory (cuCtxEnablePeerAccess).
  bool SetPeerAccess(int device, int peer, bool enabled);  // false if it was so already

  // Physical memory behind ranges, whatever the rights. Only bytes that are mapped.
  void AppendSpans(CUdeviceptr base, uint64_t bytes, std::vector<PhysicalSpan>* spans) const;

  // AddressTranslator.
  CUresult Translate(int device, CUdeviceptr address, uint64_t bytes, bool write,
                     std::vector<PhysicalSpan>* spans) override;
  bool Owns(CUdeviceptr address) const override;

 private:
  using Ranges = absl::btree_map<CUdeviceptr, std::unique_ptr<Range>>;

  Ranges::const_iterator FirstIn(CUdeviceptr base) const;
  bool Allows(const Range& range, int device, CUdeviceptr address, uint64_t bytes,
              bool write) const;

  AddressWindows windows_;
  absl::btree_map<CUdeviceptr, uint64_t> reservations_;  // base -> bytes
  Ranges ranges_;
  uint32_t peer_access_[32] = {};  // [device]: the peers whose classic memory it may use
  uint64_t next_buffer_id_ = 1;
};

}  // namespace weir::sim

#endif  // WEIR_TOOLS_SIMCUDA_ADDRESS_SPACE_H_
