// Checks of the structures that the driver and the simulated device exchange with Weir: sizes and
// offsets at compile time, and whether the driver reads and writes them so.
#include <cstddef>

#include "tools/gpu_check/checks.h"
#include "tools/gpu_check/gpu.h"
#include "tools/gpu_check/resources.h"

namespace weir::gpu_check {
namespace {

static_assert(sizeof(CUdeviceptr) == 8 && sizeof(CUmemGenericAllocationHandle) == 8);
static_assert(sizeof(CUmemLocation) == 8 && offsetof(CUmemLocation, id) == 4);
static_assert(sizeof(CUmemAllocationProp) == 32);
static_assert(offsetof(CUmemAllocationProp, requestedHandleTypes) == 4);
static_assert(offsetof(CUmemAllocationProp, location) == 8);
static_assert(offsetof(CUmemAllocationProp, win32HandleMetaData) == 16);
static_assert(offsetof(CUmemAllocationProp, allocFlags) == 24);
static_assert(sizeof(CUmemAccessDesc) == 12 && offsetof(CUmemAccessDesc, flags) == 8);
static_assert(sizeof(CUmemPoolProps) == 88);
static_assert(offsetof(CUmemPoolProps, location) == 8 && offsetof(CUmemPoolProps, maxSize) == 24);
static_assert(sizeof(CUuuid) == 16 && sizeof(CUipcMemHandle) == 64);
static_assert(sizeof(CUgraphEdgeData) == 8);

}  // namespace

Answer CheckStructLayout(const Gpu& gpu) {
  Answer answer;
  const auto ask = Need(gpu.api().MemGetAllocationPropertiesFromHandle,
                        "cuMemGetAllocationPropertiesFromHandle");
  const ScopedHandle handle(gpu, gpu.Granularity());
  const CUmemAllocationProp wanted = gpu.Properties();
  // What the driver writes behind the structure would show here.
  struct {
    CUmemAllocationProp properties;
    uint8_t guard[64];
  } got;
  std::memset(&got, 0xA5, sizeof(got));
  Must(ask(&got.properties, handle.get()), "cuMemGetAllocationPropertiesFromHandle");
  const bool guarded =
      AllAre(std::vector<uint8_t>(std::begin(got.guard), std::end(got.guard)), 0xA5);
  const bool same =
      got.properties.type == wanted.type &&
      got.properties.requestedHandleTypes == wanted.requestedHandleTypes &&
      got.properties.location.type == wanted.location.type &&
      got.properties.location.id == wanted.location.id &&
      got.properties.allocFlags.gpuDirectRDMACapable == wanted.allocFlags.gpuDirectRDMACapable;
  answer.detail = {{"type", static_cast<int>(got.properties.type)},
                   {"handle_types", static_cast<int>(got.properties.requestedHandleTypes)},
                   {"location_type", static_cast<int>(got.properties.location.type)},
                   {"location_id", got.properties.location.id},
                   {"rdma", got.properties.allocFlags.gpuDirectRDMACapable},
                   {"cuda_h_version", CUDA_VERSION}};
  answer.observed = std::string("properties come back ") + (same ? "as given" : "changed") +
                    (guarded ? "" : ", and bytes behind the structure are written");
  answer.agrees = same && guarded;
  return answer;
}

}  // namespace weir::gpu_check
