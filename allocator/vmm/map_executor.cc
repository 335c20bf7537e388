#include "allocator/vmm/map_executor.h"

#include <algorithm>

#include "allocator/vmm/remap_observers.h"

namespace weir {
namespace {

class Transaction {
 public:
  Transaction(const DeviceDriver& driver, MapPlan* plan) : driver_(driver), plan_(*plan) {}

  DriverStatus Run() {
    try {
      DriverStatus status = Forward();
      if (!status.ok()) Rollback();
      return status;
    } catch (...) {  // no host memory to describe a failure
      Rollback();
      throw;
    }
  }

 private:
  DriverStatus Forward() {
    // New memory first: it is the step most likely to fail, and then nothing was disturbed. Only
    // where victims are released to make room for it does it have to come later.
    if (plan_.released.empty()) {
      if (DriverStatus status = CreatePieces(); !status.ok()) return status;
    }
    for (Mapping* mapping : plan_.unmapped) {
      Tell(*mapping, WEIR_REMAP_BEFORE_UNMAP);
      leaving_ = mapping;
      if (DriverStatus s = driver_.Unmap(mapping->at, mapping->bytes); !s.ok()) return s;
      mapping->mapped = false;
      leaving_ = nullptr;
    }
    for (Handle* handle : plan_.released) {
      if (DriverStatus s = driver_.ReleaseHandle(handle->id); !s.ok()) return s;
      handle->id = 0;
    }
    if (!plan_.released.empty()) {
      if (DriverStatus status = CreatePieces(); !status.ok()) return status;
    }
    for (Piece& piece : plan_.pieces) {
      if (DriverStatus s = driver_.Map(piece.at, piece.bytes, piece.handle->id); !s.ok()) return s;
      piece.mapping->mapped = true;
    }
    for (const AddressRange& hole : plan_.holes) {
      if (DriverStatus s = driver_.SetAccess(hole.begin, hole.bytes); !s.ok()) return s;
      ++accessible_holes_;
      for (const Piece& piece : plan_.pieces) {
        if (Contains(hole, piece)) Tell(*piece.mapping, WEIR_REMAP_AFTER_MAP);
      }
    }
    return {};
  }

  DriverStatus CreatePieces() {
    for (Piece& piece : plan_.pieces) {
      if (!piece.created) continue;
      if (DriverStatus s = driver_.CreateHandle(piece.bytes, &piece.handle->id); !s.ok()) {
        piece.handle->id = 0;
        return s;
      }
    }
    return {};
  }

  void Rollback() {
    if (leaving_ != nullptr) Tell(*leaving_, WEIR_REMAP_AFTER_MAP);  // it has stayed
    for (Piece& piece : plan_.pieces) {
      if (piece.mapping->mapped) Undo(piece.mapping, IsAccessible(piece));
    }
    for (Piece& piece : plan_.pieces) {
      if (!piece.created || piece.handle->id == 0 || piece.mapping->mapped) continue;
      if (driver_.ReleaseHandle(piece.handle->id).ok()) piece.handle->id = 0;
    }
    for (Mapping* mapping : plan_.unmapped) PutBack(mapping);
  }

  // The contents of free memory mean nothing, so memory made anew is as good as what was released.
  void PutBack(Mapping* mapping) {
    if (mapping->mapped) return;
    Handle* handle = mapping->handle;
    if (handle->id == 0 && !driver_.CreateHandle(handle->bytes, &handle->id).ok()) {
      handle->id = 0;
      return;
    }
    if (!driver_.Map(mapping->at, mapping->bytes, handle->id).ok()) return;
    mapping->mapped = true;
    if (driver_.SetAccess(mapping->at, mapping->bytes).ok()) {
      Tell(*mapping, WEIR_REMAP_AFTER_MAP);
    } else {
      Undo(mapping, /*accessible=*/false);
    }
  }

  void Undo(Mapping* mapping, bool accessible) {
    Tell(*mapping, WEIR_REMAP_BEFORE_UNMAP);
    if (driver_.Unmap(mapping->at, mapping->bytes).ok()) {
      mapping->mapped = false;
    } else {
      mapping->handle->stuck.store(true);
      if (accessible) Tell(*mapping, WEIR_REMAP_AFTER_MAP);
    }
  }

  static bool Contains(const AddressRange& hole, const Piece& piece) {
    return piece.at - hole.begin < hole.bytes;
  }
  bool IsAccessible(const Piece& piece) const {
    const auto end = plan_.holes.begin() + static_cast<std::ptrdiff_t>(accessible_holes_);
    return std::any_of(plan_.holes.begin(), end,
                       [&](const AddressRange& hole) { return Contains(hole, piece); });
  }
  void Tell(const Mapping& mapping, weir_remap_event_t event) {
    RemapObservers::Get().Tell(driver_.ordinal(), mapping.at, mapping.bytes, event);
  }

  const DeviceDriver& driver_;
  MapPlan& plan_;
  const Mapping* leaving_ = nullptr;  // announced, and not known to be unmapped
  size_t accessible_holes_ = 0;       // of plan_.holes, the first ones
};

}  // namespace

DriverStatus ExecuteRemapping(const DeviceDriver& driver, Remapping* remapping) {
  const uint64_t at = remapping->mapping->at, bytes = remapping->mapping->bytes;
  const auto tell = [&](weir_remap_event_t event) {
    RemapObservers::Get().Tell(driver.ordinal(), at, bytes, event);
  };
  const auto unmap = [&] {
    tell(WEIR_REMAP_BEFORE_UNMAP);
    return driver.Unmap(at, bytes);
  };
  // Mapped without access; if the driver keeps it, the memory cannot be given back any more.
  const auto take_back = [&](Handle* handle) {
    const bool was_stuck = handle->stuck.load();
    handle->stuck.store(true);  // also if the failure cannot be described
    if (unmap().ok()) handle->stuck.store(was_stuck);
  };
  const auto map = [&](Handle* handle) {
    DriverStatus status = driver.Map(at, bytes, handle->id);
    if (!status.ok()) return status;
    try {
      status = driver.SetAccess(at, bytes);
    } catch (...) {  // no host memory to describe a failure
      take_back(handle);
      throw;
    }
    if (status.ok()) {
      tell(WEIR_REMAP_AFTER_MAP);
    } else {
      take_back(handle);
    }
    return status;
  };
  const auto map_back = [&] {
    remapping->from->stuck.store(true);  // until it is mapped, also if that cannot be described
    if (map(remapping->from).ok()) remapping->from->stuck.store(false);
  };
  DriverStatus status = unmap();
  if (!status.ok()) {
    tell(WEIR_REMAP_AFTER_MAP);  // it has stayed
    return status;
  }
  try {
    status = map(remapping->to);
  } catch (...) {
    map_back();
    throw;
  }
  remapping->done = status.ok();
  if (!status.ok()) map_back();
  return status;
}

DriverStatus ExecuteMapPlan(const DeviceDriver& driver, MapPlan* plan) {
  return Transaction(driver, plan).Run();
}

DriverStatus AllocateClassic(const DeviceDriver& driver, uint64_t bytes, DeviceAddress* at) {
  DriverStatus status = driver.AllocateClassic(bytes, at);
  if (status.ok()) RemapObservers::Get().Tell(driver.ordinal(), *at, bytes, WEIR_REMAP_AFTER_MAP);
  return status;
}

DriverStatus FreeClassic(const DeviceDriver& driver, DeviceAddress at, uint64_t bytes) {
  RemapObservers& observers = RemapObservers::Get();
  observers.Tell(driver.ordinal(), at, bytes, WEIR_REMAP_BEFORE_UNMAP);
  DriverStatus status = driver.FreeClassic(at);
  if (!status.ok()) observers.Tell(driver.ordinal(), at, bytes, WEIR_REMAP_AFTER_MAP);
  return status;
}

}  // namespace weir
