// Checks of cuMemMap and cuMemUnmap: what may be mapped and unmapped, and aliases.
#include <atomic>

#include "tools/gpu_check/checks.h"
#include "tools/gpu_check/gpu.h"
#include "tools/gpu_check/resources.h"

namespace weir::gpu_check {

Answer CheckPartialMapping(const Gpu& gpu) {
  const uint64_t unit = gpu.Granularity();
  Answer answer;
  ScopedHandle handle(gpu, 2 * unit);
  ScopedRange range(gpu, 2 * unit);
  const CUresult result = gpu.api().MemMap(range.base(), unit, 0, handle.get(), 0);
  answer.observed = ResultName(result);
  answer.agrees = result == CUDA_SUCCESS;
  if (result != CUDA_SUCCESS) return answer;
  // The size that the address then tells.
  CUdeviceptr base = 0;
  size_t bytes = 0;
  const CUresult asked =
      Need(gpu.api().MemGetAddressRange, "cuMemGetAddressRange")(&base, &bytes, range.base());
  answer.detail["address_range_bytes"] = bytes;
  answer.detail["address_range_result"] = ResultName(asked);
  answer.detail["set_access"] = ResultName(ScopedRange::SetAccess(gpu, range.base(), unit));
  Must(gpu.api().MemUnmap(range.base(), unit), "cuMemUnmap");
  // And with an offset into the handle, which cuda.h says must be zero.
  const CUresult offset = gpu.api().MemMap(range.base(), unit, unit, handle.get(), 0);
  answer.detail["with_offset"] = ResultName(offset);
  answer.observed += "; with an offset into the handle: " + ResultName(offset);
  if (offset == CUDA_SUCCESS) Must(gpu.api().MemUnmap(range.base(), unit), "cuMemUnmap");
  return answer;
}

Answer CheckMappingAcrossReservations(const Gpu& gpu) {
  const uint64_t unit = gpu.Granularity();
  Answer answer;
  ScopedHandle handle(gpu, 2 * unit);
  ScopedRange first(gpu, unit);
  // The hint is only a hint: some attempts may be needed until one lies beside the first.
  std::vector<std::unique_ptr<ScopedRange>> tried;
  CUdeviceptr low = 0;
  for (int attempt = 0; attempt < 16 && low == 0; ++attempt) {
    const CUdeviceptr from = attempt == 0 ? first.base() : tried.back()->base();
    tried.push_back(std::make_unique<ScopedRange>(gpu, unit, from + unit));
    if (tried.back()->base() == from + unit) low = from;
    if (tried.back()->base() + unit == from) low = tried.back()->base();
  }
  if (low == 0) {
    answer.observed = "the driver gave no adjacent reservations";
    return answer;
  }
  const CUresult result = gpu.api().MemMap(low, 2 * unit, 0, handle.get(), 0);
  answer.observed = ResultName(result);
  answer.agrees = result == CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) {
    answer.detail["set_access"] = ResultName(ScopedRange::SetAccess(gpu, low, 2 * unit));
    Must(gpu.api().MemUnmap(low, 2 * unit), "cuMemUnmap");
  }
  return answer;
}

Answer CheckAliasVisibility(const Gpu& gpu) {
  const uint64_t unit = gpu.Granularity();
  const uint64_t bytes = gpu.simulated() ? 64 * 1024 : unit;
  Answer answer;
  ScopedHandle handle(gpu, unit);
  ScopedRange one(gpu, unit);
  ScopedRange two(gpu, unit);
  one.Map(0, unit, handle.get());
  two.Map(0, unit, handle.get());
  ScopedDeviceMemory out(gpu, bytes);
  ScopedStream stream(gpu);
  // The reader has just cached the old contents through the other alias.
  constexpr int kRounds = 32;
  int stale = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto value = static_cast<uint8_t>(round + 1);
    gpu.kernels().Copy(stream.get(), out.get(), two.base(), bytes);
    gpu.kernels().Fill(stream.get(), one.base(), value, bytes);
    gpu.kernels().Copy(stream.get(), out.get(), two.base(), bytes);
    if (!AllAre(gpu.Read(out.get(), bytes), value)) ++stale;
  }
  answer.detail = {{"rounds", kRounds}, {"stale_rounds", stale}, {"bytes", bytes}};
  answer.observed = std::to_string(stale) + " of " + std::to_string(kRounds) + " rounds were stale";
  answer.agrees = stale == 0;
  return answer;
}

Answer CheckAliasDisjointBytes(const Gpu& gpu) {
  const uint64_t unit = gpu.Granularity();
  // Every other byte: the finest sharing of cache lines there is.
  const uint64_t bytes = gpu.simulated() ? 4096 : unit;
  const uint32_t repeats = gpu.simulated() ? 1 : 50;
  constexpr int kRounds = 16;
  Answer answer;
  ScopedHandle handle(gpu, unit);
  ScopedRange one(gpu, unit);
  ScopedRange two(gpu, unit);
  one.Map(0, unit, handle.get());
  two.Map(0, unit, handle.get());
  ScopedStream even(gpu);
  ScopedStream odd(gpu);
  uint64_t lost = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto value = static_cast<uint8_t>(2 * round + 2);
    const auto other = static_cast<uint8_t>(value + 1);
    gpu.Set(one.base(), 0, bytes);
    Gate gate(gpu);  // both begin at the same time
    gate.Hold(even.get());
    gate.Hold(odd.get());
    gpu.kernels().Fill(even.get(), one.base(), value, bytes / 2, 2, repeats);
    gpu.kernels().Fill(odd.get(), two.base() + 1, other, bytes / 2, 2, repeats);
    gate.Open();
    // Through both aliases.
    for (const CUdeviceptr alias : {one.base(), two.base()}) {
      const std::vector<uint8_t> data = gpu.Read(alias, bytes);
      for (uint64_t i = 0; i < bytes; ++i) lost += data[i] != (i % 2 == 0 ? value : other);
    }
  }
  answer.detail = {{"rounds", kRounds}, {"bytes", bytes}, {"lost_bytes", lost}};
  answer.observed = std::to_string(lost) + " bytes lost in " + std::to_string(kRounds) + " rounds";
  answer.agrees = lost == 0;
  return answer;
}

Answer CheckUnmapSeveral(const Gpu& gpu) {
  const uint64_t unit = gpu.Granularity();
  constexpr uint64_t kHandles = 4;
  Answer answer;
  ScopedRange range(gpu, kHandles * unit);
  std::vector<std::unique_ptr<ScopedHandle>> handles;
  for (uint64_t i = 0; i < kHandles; ++i) {
    handles.push_back(std::make_unique<ScopedHandle>(gpu, unit));
    range.Map(i * unit, unit, handles.back()->get());
  }
  const CUresult result = gpu.api().MemUnmap(range.base(), kHandles * unit);
  answer.observed = ResultName(result);
  answer.agrees = result == CUDA_SUCCESS;
  if (result != CUDA_SUCCESS) return answer;
  range.ForgetMappings();
  // With a hole: Weir does not do it, but it is what a bug would look like.
  Must(gpu.api().MemMap(range.base(), unit, 0, handles[0]->get(), 0), "cuMemMap");
  Must(gpu.api().MemMap(range.base() + 2 * unit, unit, 0, handles[2]->get(), 0), "cuMemMap");
  const CUresult hole = gpu.api().MemUnmap(range.base(), 3 * unit);
  answer.detail["with_a_hole"] = ResultName(hole);
  answer.observed += "; over a hole: " + ResultName(hole);
  // What is left, whatever the driver made of it.
  (void)gpu.api().MemUnmap(range.base(), unit);
  (void)gpu.api().MemUnmap(range.base() + 2 * unit, unit);
  return answer;
}

Answer CheckUnmapPart(const Gpu& gpu) {
  const uint64_t unit = gpu.Granularity();
  Answer answer;
  ScopedHandle handle(gpu, 2 * unit);
  ScopedRange range(gpu, 2 * unit);
  range.Map(0, 2 * unit, handle.get());
  const CUresult result = gpu.api().MemUnmap(range.base(), unit);
  answer.observed = ResultName(result);
  answer.agrees = result == CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) {
    range.ForgetMappings();
    answer.detail["rest"] = ResultName(gpu.api().MemUnmap(range.base() + unit, unit));
  }
  return answer;
}

}  // namespace weir::gpu_check
