#include "tools/simcuda/cost_model.h"

namespace weir::sim {
namespace {

struct DefaultCost {
  const char* entry;
  Cost cost;
};

constexpr double kMicrosecond = 1000;  // ns
// A wait on the host: the price of a synchronization in the placement study, whatever is waited
// for.
constexpr double kSynchronization = 200 * kMicrosecond;
constexpr Cost kOther = {1 * kMicrosecond, 0, 0};
// What the driver answers from the thread's or the process's own state.
constexpr Cost kLookUp = {50, 0, 0};

// The memory calls follow the cost model of the placement study (policy.md section 1, gathered from
// published logs of other allocators); the rest is set to the order of magnitude that is usual.
constexpr DefaultCost kDefaults[] = {
    {"cuMemCreate", {29 * kMicrosecond, 0, 1 * kMicrosecond}},
    {"cuMemMap", {4 * kMicrosecond, 0, 0}},
    {"cuMemSetAccess", {25 * kMicrosecond, 3 * kMicrosecond, 0}},
    {"cuMemUnmap", {0, 20 * kMicrosecond, 0}},
    {"cuMemRelease", {20 * kMicrosecond, 0, 0}},
    {"cuMemAddressReserve", {4 * kMicrosecond, 0, 0}},
    {"cuMemAddressFree", {4 * kMicrosecond, 0, 0}},
    {"cuMemAlloc", {200 * kMicrosecond, 0, 1 * kMicrosecond}},
    {"cuMemAllocPitch", {200 * kMicrosecond, 0, 1 * kMicrosecond}},
    {"cuMemAllocManaged", {200 * kMicrosecond, 0, 1 * kMicrosecond}},
    {"cuMemFree", {100 * kMicrosecond, 0, 0}},
    {"cuMemHostAlloc", {200 * kMicrosecond, 0, 100 * kMicrosecond}},
    {"cuMemAllocHost", {200 * kMicrosecond, 0, 100 * kMicrosecond}},
    {"cuMemHostRegister", {200 * kMicrosecond, 0, 100 * kMicrosecond}},
    {"cuMemFreeHost", {200 * kMicrosecond, 0, 0}},
    {"cuMemHostUnregister", {200 * kMicrosecond, 0, 0}},
    {"cuCtxGetCurrent", kLookUp},
    {"cuCtxSetCurrent", kLookUp},
    {"cuCtxGetDevice", kLookUp},
    {"cuStreamGetCtx", kLookUp},
    {"cuStreamIsCapturing", kLookUp},
    {"cuThreadExchangeStreamCaptureMode", kLookUp},
    {"cuEventSynchronize", {kSynchronization, 0, 0}},
    {"cuStreamSynchronize", {kSynchronization, 0, 0}},
    {"cuCtxSynchronize", {kSynchronization, 0, 0}},
};

}  // namespace

int FindEntry(std::string_view name) {
  for (int id = 0; id < kEntryCount; ++id) {
    if (name == kEntries[id].name) return id;
  }
  return -1;
}

void CostModel::SetDefaults() {
  for (Cost& cost : costs_) cost = kOther;
  for (const DefaultCost& entry : kDefaults) Set(entry.entry, entry.cost);
}

void CostModel::Set(std::string_view entry, Cost cost) {
  const int id = FindEntry(entry);
  if (id >= 0) costs_[id] = cost;
}

uint64_t CostModel::Price(EntryId entry, uint64_t handles, uint64_t bytes) const {
  const Cost& cost = costs_[entry];
  constexpr double kMib = 1 << 20;
  const double price = cost.call_ns + cost.per_handle_ns * static_cast<double>(handles) +
                       cost.per_mib_ns * static_cast<double>(bytes) / kMib;
  return static_cast<uint64_t>(price);
}

}  // namespace weir::sim
