#include "allocator/vmm/mesh_plan.h"

#include <algorithm>

#include "allocator/block/arena.h"

namespace weir {
namespace {

// Pairs looked at, so that a plan takes milliseconds whatever the number of granules.
constexpr uint64_t kMostPairs = 8'000'000;

bool FitTogether(const PartGranule& a, const PartGranule& b, uint64_t granule) {
  if (a.used_bytes + b.used_bytes > granule) return false;
  if (a.mapping->arena->owner() != b.mapping->arena->owner()) return false;
  for (size_t i = 0; i < a.used.size(); ++i) {
    if ((a.used[i] & b.used[i]) != 0) return false;
  }
  return true;
}

}  // namespace

std::optional<PartGranule> DescribeGranule(const Handle& handle, uint64_t granule) {
  return DescribeGranule(handle, granule, &IsReady, [](const Mapping&) { return false; });
}

std::optional<PartGranule> DescribeGranule(const Handle& handle, uint64_t granule,
                                           const IsFreeFn& is_free, const IsGoneFn& is_gone) {
  Mapping* owner = handle.mappings;
  if (handle.bytes != granule || handle.id == 0 || handle.taken || handle.stuck.load()) return {};
  if (handle.pins > 0) return {};
  if (owner == nullptr || owner->live == 0 || owner->guest) return {};
  PartGranule part;
  part.mapping = owner;
  for (const Mapping* m = owner->next; m != nullptr; m = m->next) {
    if (is_gone(*m)) continue;
    if (!m->guest) return {};
    part.may_move = false;  // a guest is never a host
  }
  const uint64_t unit = granule / PartGranule::kUnits;
  const bool known = ForEachUsed(*owner, is_free, [&](AddressRange range) {
    const uint64_t from = range.begin - owner->at;
    part.used_bytes += range.bytes;
    for (uint64_t i = from / unit; i <= (from + range.bytes - 1) / unit; ++i)
      part.used[i / 64] |= uint64_t{1} << (i % 64);
  });
  if (!known) return {};
  if (part.used_bytes == granule || part.used_bytes == 0) return {};
  return part;
}

std::vector<Merge> PlanMerges(std::vector<PartGranule> granules, size_t most) {
  std::vector<Merge> merges;
  if (granules.empty()) return merges;
  const uint64_t granule = granules.front().mapping->bytes;
  std::sort(granules.begin(), granules.end(), [](const PartGranule& a, const PartGranule& b) {
    return a.used_bytes != b.used_bytes ? a.used_bytes < b.used_bytes
                                        : a.mapping->at < b.mapping->at;
  });
  std::vector<bool> is_part(granules.size(), false);
  uint64_t pairs = 0;
  for (size_t g = 0; g < granules.size() && merges.size() < most; ++g) {
    if (is_part[g] || !granules[g].may_move) continue;
    for (size_t h = granules.size() - 1; h > g && pairs < kMostPairs; --h, ++pairs) {
      if (is_part[h] || !FitTogether(granules[g], granules[h], granule)) continue;
      is_part[g] = is_part[h] = true;
      merges.push_back({granules[g].mapping, granules[h].mapping});
      break;
    }
  }
  return merges;
}

}  // namespace weir
