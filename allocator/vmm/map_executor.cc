#include "allocator/vmm/map_executor.h"

namespace weir {
namespace {

class Transaction {
 public:
  Transaction(const DeviceDriver& driver, MapPlan* plan) : driver_(driver), plan_(*plan) {
    for (const Handle* victim : plan_.victims) old_at_.push_back(victim->at);
  }

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
    for (Handle* victim : plan_.victims) {
      if (victim->at == 0) continue;
      if (DriverStatus s = driver_.Unmap(victim->at, victim->bytes); !s.ok()) return s;
      victim->at = 0;
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
      piece.handle->at = piece.at;
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
      if (piece.handle->at != piece.at) continue;
      if (driver_.Unmap(piece.at, piece.bytes).ok()) {
        piece.handle->at = 0;
      } else {
        piece.handle->stuck = true;
      }
    }
    for (Piece& piece : plan_.pieces) {
      if (!piece.created || piece.handle->id == 0 || piece.handle->at != 0) continue;
      if (driver_.ReleaseHandle(piece.handle->id).ok()) piece.handle->id = 0;
    }
    for (size_t i = 0; i < plan_.victims.size(); ++i) PutBack(plan_.victims[i], old_at_[i]);
  }

  // The contents of free memory mean nothing, so memory made anew is as good as what was released.
  void PutBack(Handle* victim, uint64_t old_at) {
    if (victim->at != 0 || old_at == 0) return;
    if (victim->id == 0 && !driver_.CreateHandle(victim->bytes, &victim->id).ok()) {
      victim->id = 0;
      return;
    }
    if (!driver_.Map(old_at, victim->bytes, victim->id).ok()) return;
    victim->at = old_at;
    if (driver_.SetAccess(old_at, victim->bytes).ok()) return;
    if (driver_.Unmap(old_at, victim->bytes).ok()) {
      victim->at = 0;
    } else {
      victim->stuck = true;
    }
  }

  const DeviceDriver& driver_;
  MapPlan& plan_;
  std::vector<uint64_t> old_at_;
};

}  // namespace

DriverStatus ExecuteMapPlan(const DeviceDriver& driver, MapPlan* plan) {
  return Transaction(driver, plan).Run();
}

DriverStatus UnmapAndRelease(const DeviceDriver& driver, Handle* handle) {
  if (handle->at != 0) {
    if (DriverStatus status = driver.Unmap(handle->at, handle->bytes); !status.ok()) return status;
    handle->at = 0;
  }
  DriverStatus status = driver.ReleaseHandle(handle->id);
  if (status.ok()) handle->id = 0;
  return status;
}

}  // namespace weir
