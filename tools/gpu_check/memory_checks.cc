// Checks of sizes and alignments of memory.
#include <bit>
#include <map>

#include "tools/gpu_check/checks.h"
#include "tools/gpu_check/gpu.h"
#include "tools/gpu_check/resources.h"

namespace weir::gpu_check {
namespace {

constexpr uint64_t kMib = uint64_t{1} << 20;

// Minimum and recommended granularity; {"result": ...} where the driver refuses.
nlohmann::json AskGranularity(const Gpu& gpu, const CUmemAllocationProp& properties) {
  const auto ask = Need(gpu.api().MemGetAllocationGranularity, "cuMemGetAllocationGranularity");
  size_t minimum = 0;
  size_t recommended = 0;
  CUresult result = ask(&minimum, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (result == CUDA_SUCCESS) {
    result = ask(&recommended, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  }
  if (result != CUDA_SUCCESS) return {{"result", ResultName(result)}};
  return {{"minimum", minimum}, {"recommended", recommended}};
}

std::string GranularityText(const nlohmann::json& answer) {
  if (answer.contains("result")) return answer["result"];
  return answer["minimum"].dump() + "/" + answer["recommended"].dump();
}

}  // namespace

Answer CheckGranularity(const Gpu& gpu) {
  Answer answer;
  gpu.Granularity();
  bool agrees = true;
  for (const bool rdma : {false, true}) {
    const nlohmann::json got = AskGranularity(gpu, HandleProperties(gpu.device(), false, rdma));
    const char* name = rdma ? "with_rdma" : "plain";
    answer.detail[name] = got;
    answer.observed += (rdma ? ", with RDMA " : "minimum/recommended ") + GranularityText(got);
    // A device without RDMA may refuse the flag.
    const bool refused = got.contains("result");
    if (refused && rdma && gpu.caps().rdma.value == 0) continue;
    agrees = agrees && !refused && got["minimum"] == 2 * kMib && got["recommended"] == 2 * kMib;
  }
  answer.agrees = agrees;
  return answer;
}

Answer CheckHostGranularity(const Gpu& gpu) {
  Answer answer;
  CUmemAllocationProp properties = HandleProperties(gpu.device(), false, false);
  properties.location = {};
  properties.location.type = CU_MEM_LOCATION_TYPE_HOST;
  answer.detail["host"] = AskGranularity(gpu, properties);
  properties.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
  properties.location.id = std::max(0, gpu.Attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID));
  answer.detail["host_numa"] = AskGranularity(gpu, properties);
  answer.detail["host_numa_id"] = gpu.Attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);
  answer.detail["host_vmm_attribute"] =
      gpu.Attribute(CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  answer.detail["host_numa_vmm_attribute"] =
      gpu.Attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  answer.observed = "HOST " + GranularityText(answer.detail["host"]) + ", HOST_NUMA " +
                    GranularityText(answer.detail["host_numa"]);
  return answer;
}

Answer CheckClassicAlignment(const Gpu& gpu) {
  Answer answer;
  uint64_t worst = ~uint64_t{0};
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{513}, 64 * uint64_t{1024}, kMib, 3 * kMib}) {
    uint64_t alignment = ~uint64_t{0};
    std::vector<std::unique_ptr<ScopedDeviceMemory>> held;
    for (int i = 0; i < 8; ++i) {
      held.push_back(std::make_unique<ScopedDeviceMemory>(gpu, bytes));
      alignment = std::min(alignment, uint64_t{1} << std::countr_zero(held.back()->get()));
    }
    answer.detail["alignment_by_bytes"][std::to_string(bytes)] = alignment;
    worst = std::min(worst, alignment);
  }
  answer.observed = "to " + std::to_string(worst) + " bytes";
  answer.agrees = worst >= 512;
  return answer;
}

Answer CheckMemInfoStep(const Gpu& gpu) {
  Answer answer;
  const auto free_bytes = [&gpu] {
    size_t free = 0;
    size_t total = 0;
    Must(gpu.api().MemGetInfo(&free, &total), "cuMemGetInfo");
    return static_cast<int64_t>(free);
  };
  // Other processes allocate too, so the most frequent drop counts.
  std::map<int64_t, int> drops;
  std::vector<std::unique_ptr<ScopedDeviceMemory>> held;
  int64_t before = free_bytes();
  for (int i = 0; i < 160; ++i) {
    held.push_back(std::make_unique<ScopedDeviceMemory>(gpu, 64 * 1024));
    const int64_t now = free_bytes();
    if (now != before) ++drops[before - now];
    before = now;
  }
  int64_t step = 0;
  for (const auto& [drop, count] : drops) {
    answer.detail["drops"][std::to_string(drop)] = count;
    if (step == 0 || count > drops[step]) step = drop;
  }
  answer.observed = "160 allocations of 64 KiB: steps of " + std::to_string(step) + " bytes";
  answer.agrees = step == static_cast<int64_t>(2 * kMib);
  return answer;
}

}  // namespace weir::gpu_check
