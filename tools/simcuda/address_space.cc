#include "tools/simcuda/address_space.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "tools/simcuda/pools.h"

namespace weir::sim {

void AccessRights::Set(int device, CUmemAccess_flags flags) {
  const uint32_t bit = uint32_t{1} << device;
  read = flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ? read & ~bit : read | bit;
  write = flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? write | bit : write & ~bit;
}

CUmemAccess_flags AccessRights::Get(int device) const {
  if (Allows(device, true)) return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return Allows(device, false) ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

void AddressSpace::Clear() {
  ranges_.clear();
  reservations_.clear();
  windows_.Clear();
  std::fill(std::begin(peer_access_), std::end(peer_access_), 0U);
}

CUdeviceptr AddressSpace::Reserve(uint64_t bytes, uint64_t alignment, CUdeviceptr hint) {
  const CUdeviceptr base = windows_.Allocate(bytes, alignment, hint);
  if (base != 0) reservations_[base] = bytes;
  return base;
}

void AddressSpace::Unreserve(CUdeviceptr base) {
  const auto found = reservations_.find(base);
  windows_.Free(base, found->second);
  reservations_.erase(found);
}

bool AddressSpace::FindReservation(CUdeviceptr address, CUdeviceptr* base, uint64_t* bytes) const {
  auto after = reservations_.upper_bound(address);
  if (after == reservations_.begin()) return false;
  --after;
  *base = after->first;
  *bytes = after->second;
  return address - *base < *bytes;
}

Range* AddressSpace::Add(std::unique_ptr<Range> range) {
  range->buffer_id = next_buffer_id_++;
  Range* added = range.get();
  ranges_[added->base] = std::move(range);
  return added;
}

void AddressSpace::Remove(CUdeviceptr base) { ranges_.erase(base); }

AddressSpace::Ranges::const_iterator AddressSpace::FirstIn(CUdeviceptr base) const {
  auto after = ranges_.upper_bound(base);
  if (after == ranges_.begin()) return after;
  const auto before = std::prev(after);
  return base - before->first < before->second->bytes ? before : after;
}

Range* AddressSpace::Find(CUdeviceptr address) const {
  const auto found = FirstIn(address);
  return found != ranges_.end() && found->first <= address ? found->second.get() : nullptr;
}

bool AddressSpace::Overlaps(CUdeviceptr base, uint64_t bytes) const {
  const auto first = FirstIn(base);
  return first != ranges_.end() && first->first < base + bytes;
}

bool AddressSpace::IsTiledByMappings(CUdeviceptr base, uint64_t bytes) const {
  const auto first = ranges_.find(base);
  CUdeviceptr at = base;
  for (auto it = first; it != ranges_.end() && at < base + bytes; ++it) {
    if (it->first != at || it->second->kind != RangeKind::kMapping) return false;
    at += it->second->bytes;
  }
  return at == base + bytes;
}

bool AddressSpace::IsMapped(CUdeviceptr base, uint64_t bytes) const {
  CUdeviceptr at = base;
  for (auto it = FirstIn(base); it != ranges_.end() && at < base + bytes; ++it) {
    if (it->first > at || it->second->kind != RangeKind::kMapping) return false;
    at = it->first + it->second->bytes;
  }
  return at >= base + bytes;
}

void AddressSpace::SetRights(CUdeviceptr base, uint64_t bytes, int device,
                             CUmemAccess_flags flags) {
  ForEachIn(base, bytes, [&](Range& range) {
    const uint64_t begin = base > range.base ? base - range.base : 0;
    const uint64_t end = std::min<uint64_t>(range.bytes, base + bytes - range.base);
    std::vector<Range::Part> parts;
    uint64_t at = 0;
    for (const Range::Part& part : range.parts) {
      // The piece before the change, the changed one, and the piece behind it.
      for (const uint64_t piece_end :
           {std::min(part.end, begin), std::min(part.end, end), part.end}) {
        if (piece_end <= at) continue;
        AccessRights rights = part.rights;
        if (at >= begin && at < end) rights.Set(device, flags);
        const bool as_before = !parts.empty() && parts.back().rights.read == rights.read &&
                               parts.back().rights.write == rights.write;
        if (as_before) {
          parts.back().end = piece_end;
        } else {
          parts.push_back({piece_end, rights});
        }
        at = piece_end;
      }
    }
    range.parts = std::move(parts);
  });
}

AccessRights AddressSpace::RightsAt(const Range& range, CUdeviceptr address) const {
  constexpr uint32_t kEveryone = 0xffffffff;
  switch (range.kind) {
    case RangeKind::kMapping:
      for (const Range::Part& part : range.parts) {
        if (address - range.base < part.end) return part.rights;
      }
      return {};
    case RangeKind::kPool:
      return range.pool->rights;
    case RangeKind::kClassic:
    case RangeKind::kOpened: {
      AccessRights rights;
      for (int device = 0; device < 32; ++device) {
        const bool peer = ((peer_access_[device] >> range.device) & 1) != 0;
        if (peer || device == range.device) rights.Set(device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
      }
      return rights;
    }
    case RangeKind::kManaged:
    case RangeKind::kPinned:
    case RangeKind::kRegistered:
      break;
  }
  return {kEveryone, kEveryone};
}

bool AddressSpace::Allows(const Range& range, int device, CUdeviceptr address, uint64_t bytes,
                          bool write) const {
  switch (range.kind) {
    case RangeKind::kMapping: {
      uint64_t at = address - range.base;
      const uint64_t end = at + bytes;
      for (const Range::Part& part : range.parts) {
        if (at >= part.end) continue;
        if (!part.rights.Allows(device, write)) return false;
        if (end <= part.end) return true;
        at = part.end;
      }
      return false;
    }
    case RangeKind::kPool:
      return range.pool->rights.Allows(device, write);
    case RangeKind::kClassic:
    case RangeKind::kOpened:
      return device == range.device || ((peer_access_[device] >> range.device) & 1) != 0;
    case RangeKind::kManaged:
    case RangeKind::kPinned:
    case RangeKind::kRegistered:
      break;
  }
  return true;
}

bool AddressSpace::SetPeerAccess(int device, int peer, bool enabled) {
  const uint32_t bit = uint32_t{1} << peer;
  const bool was = (peer_access_[device] & bit) != 0;
  peer_access_[device] = enabled ? peer_access_[device] | bit : peer_access_[device] & ~bit;
  return was != enabled;
}

void AddressSpace::AppendSpans(CUdeviceptr base, uint64_t bytes,
                               std::vector<PhysicalSpan>* spans) const {
  ForEachIn(base, bytes, [&](Range& range) {
    const CUdeviceptr begin = std::max(base, range.base);
    const CUdeviceptr end = std::min(base + bytes, range.base + range.bytes);
    range.store->AppendSpans(begin - range.base, end - begin, spans);
  });
}

CUresult AddressSpace::Translate(int device, CUdeviceptr address, uint64_t bytes, bool write,
                                 std::vector<PhysicalSpan>* spans) {
  if (bytes > UINT64_MAX - address) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (auto it = FirstIn(address); bytes > 0; ++it) {
    if (it == ranges_.end() || it->first > address) return CUDA_ERROR_ILLEGAL_ADDRESS;
    Range& range = *it->second;
    const uint64_t taken = std::min<uint64_t>(bytes, range.base + range.bytes - address);
    if (!Allows(range, device, address, taken, write)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    range.store->Touch();
    range.store->AppendSpans(address - range.base, taken, spans);
    address += taken;
    bytes -= taken;
  }
  return CUDA_SUCCESS;
}

bool AddressSpace::Owns(CUdeviceptr address) const {
  return windows_.Contains(address) || Find(address) != nullptr;
}

}  // namespace weir::sim
