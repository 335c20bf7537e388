#include "allocator/vmm/map_executor.h"

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
      if (DriverStatus s = driver_.Unmap(mapping->at, mapping->bytes); !s.ok()) return s;
      mapping->mapped = false;
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
    for (Piece& piece : plan_.pieces) {
      if (piece.mapping->mapped) Undo(piece.mapping);
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
    if (!driver_.SetAccess(mapping->at, mapping->bytes).ok()) Undo(mapping);
  }

  void Undo(Mapping* mapping) {
    if (driver_.Unmap(mapping->at, mapping->bytes).ok()) {
      mapping->mapped = false;
    } else {
      mapping->handle->stuck = true;
    }
  }

  const DeviceDriver& driver_;
  MapPlan& plan_;
};

}  // namespace

DriverStatus ExecuteRemapping(const DeviceDriver& driver, Remapping* remapping) {
  const uint64_t at = remapping->mapping->at, bytes = remapping->mapping->bytes;
  const auto map = [&](const Handle& handle) {
    DriverStatus status = driver.Map(at, bytes, handle.id);
    if (!status.ok()) return status;
    status = driver.SetAccess(at, bytes);
    if (!status.ok()) driver.Unmap(at, bytes).IgnoreError();
    return status;
  };
  DriverStatus status = driver.Unmap(at, bytes);
  if (!status.ok()) return status;
  status = map(*remapping->to);
  remapping->done = status.ok();
  if (!status.ok() && !map(*remapping->from).ok()) remapping->from->stuck = true;
  return status;
}

DriverStatus ExecuteMapPlan(const DeviceDriver& driver, MapPlan* plan) {
  return Transaction(driver, plan).Run();
}

}  // namespace weir
