// Peer: somebody else who holds physical memory of the simulated device (simcuda.h). It keeps the
// stores behind an address range alive, as they were at its construction, and reads and writes them
// past the page table, as a network card does.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tools/simcuda/simulator.h"

namespace weir::sim {
namespace {

bool SamePages(const std::vector<PhysicalSpan>& a, const std::vector<PhysicalSpan>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].store != b[i].store || a[i].offset != b[i].offset || a[i].bytes != b[i].bytes) {
      return false;
    }
  }
  return true;
}

const char* Name(PeerHold how) {
  switch (how) {
    case PeerHold::kRegistration:
      return "registration";
    case PeerHold::kExport:
      return "export";
    case PeerHold::kRetain:
      return "retain";
  }
  return "";
}

}  // namespace

struct Peer::Impl {
  CUdeviceptr address;
  uint64_t bytes;
  PeerHold how;
  std::vector<std::shared_ptr<Store>> stores;
  std::vector<PhysicalSpan> spans;
  uint64_t generation = 0;  // of the simulator whose pages these are
  bool reported = false;

  // Calls visit(host, bytes, position) for the pieces of [offset, offset + bytes), clipped to what
  // the peer holds.
  template <typename Visit>
  void ForEachPiece(uint64_t offset, uint64_t length, Visit visit) const {
    uint64_t at = 0;  // where the span begins in the peer's range
    uint64_t position = 0;
    for (const PhysicalSpan& span : spans) {
      if (length == 0) return;
      if (offset < at + span.bytes) {
        const uint64_t skip = offset - at;
        const uint64_t taken = std::min(length, span.bytes - skip);
        visit(span.host + skip, taken, position);
        offset += taken;
        position += taken;
        length -= taken;
      }
      at += span.bytes;
    }
  }
};

Peer::Peer(CUdeviceptr address, uint64_t bytes, PeerHold how)
    : impl_(new Impl{address, bytes, how, {}, {}, 0, false}) {
  Simulator& sim = Simulator::Get();
  const std::lock_guard<std::mutex> hold(sim.lock());
  impl_->generation = sim.generation();
  sim.space().AppendSpans(address, bytes, &impl_->spans);
  sim.space().ForEachIn(address, bytes, [this](const Range& range) {
    range.store->Touch();
    impl_->stores.push_back(range.store);
  });
}

Peer::~Peer() {
  StillMapped();
  const std::lock_guard<std::mutex> hold(Simulator::Get().lock());
  delete impl_;
}

void Peer::Write(uint64_t offset, const void* from, uint64_t bytes) {
  const std::lock_guard<std::mutex> hold(Simulator::Get().lock());
  impl_->ForEachPiece(offset, bytes, [from](std::byte* host, uint64_t length, uint64_t position) {
    std::memcpy(host, static_cast<const std::byte*>(from) + position, length);
  });
}

void Peer::Read(uint64_t offset, void* to, uint64_t bytes) const {
  const std::lock_guard<std::mutex> hold(Simulator::Get().lock());
  impl_->ForEachPiece(offset, bytes, [to](std::byte* host, uint64_t length, uint64_t position) {
    std::memcpy(static_cast<std::byte*>(to) + position, host, length);
  });
}

bool Peer::StillMapped() const {
  Simulator& sim = Simulator::Get();
  const std::lock_guard<std::mutex> hold(sim.lock());
  if (impl_->generation != sim.generation()) return false;  // Reset took the addresses
  std::vector<PhysicalSpan> now;
  sim.space().AppendSpans(impl_->address, impl_->bytes, &now);
  const bool mapped = SamePages(now, impl_->spans);
  if (!mapped && !impl_->reported) {
    impl_->reported = true;
    char range[64];
    std::snprintf(range, sizeof(range), "[0x%llx, +%llu)",
                  static_cast<unsigned long long>(impl_->address),
                  static_cast<unsigned long long>(impl_->bytes));
    const std::string holder = std::string("peer that holds pages by ") + Name(impl_->how);
    sim.timeline().AddReport({"remapped under a " + holder + ": " + range +
                                  " no longer shows the pages that the peer uses",
                              holder, "remap"});
  }
  return mapped;
}

}  // namespace weir::sim
