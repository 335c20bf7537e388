// Checks of what the driver tells about pointers.
#include "tools/gpu_check/checks.h"
#include "tools/gpu_check/gpu.h"
#include "tools/gpu_check/resources.h"

namespace weir::gpu_check {
namespace {

// The attribute, or nothing if the driver refuses.
template <typename T>
CUresult Ask(const Gpu& gpu, CUpointer_attribute attribute, CUdeviceptr pointer, T* value) {
  return Need(gpu.api().PointerGetAttribute, "cuPointerGetAttribute")(value, attribute, pointer);
}

// One granule that is mapped.
struct Mapped {
  explicit Mapped(const Gpu& gpu) : handle(gpu, gpu.Granularity()), range(gpu, gpu.Granularity()) {
    range.Map(0, gpu.Granularity(), handle.get());
  }
  ScopedHandle handle;
  ScopedRange range;
};

}  // namespace

Answer CheckMappedContext(const Gpu& gpu) {
  Answer answer;
  const Mapped mapped(gpu);
  CUcontext context = reinterpret_cast<CUcontext>(1);
  const CUresult result = Ask(gpu, CU_POINTER_ATTRIBUTE_CONTEXT, mapped.range.base(), &context);
  answer.observed = ResultName(result);
  if (result == CUDA_SUCCESS) {
    answer.observed = context == nullptr         ? "NULL"
                      : context == gpu.context() ? "the primary context"
                                                 : "another context";
  }
  answer.agrees = result == CUDA_SUCCESS && context == nullptr;
  return answer;
}

Answer CheckIpcCapable(const Gpu& gpu) {
  Answer answer;
  const Mapped mapped(gpu);
  const ScopedDeviceMemory classic(gpu, gpu.Granularity());
  bool mapped_capable = true;
  const auto ask = [&](const char* name, CUdeviceptr pointer) {
    int capable = -1;
    const CUresult result =
        Ask(gpu, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, pointer, &capable);
    answer.detail[name] =
        result == CUDA_SUCCESS ? nlohmann::json(capable) : nlohmann::json(ResultName(result));
    answer.observed +=
        std::string(answer.observed.empty() ? "" : ", ") + name + ": " + answer.detail[name].dump();
    return capable;
  };
  mapped_capable = ask("mapped", mapped.range.base()) == 1;
  ask("classic", classic.get());
  answer.agrees = !mapped_capable;
  return answer;
}

Answer CheckBufferId(const Gpu& gpu) {
  Answer answer;
  const uint64_t unit = gpu.Granularity();
  ScopedHandle first(gpu, unit);
  ScopedHandle second(gpu, unit);
  ScopedRange range(gpu, unit);
  const auto map_and_ask = [&](const ScopedHandle& handle) {
    unsigned long long id = 0;
    range.Map(0, unit, handle.get());
    Must(Ask(gpu, CU_POINTER_ATTRIBUTE_BUFFER_ID, range.base(), &id), "cuPointerGetAttribute");
    Must(gpu.api().MemUnmap(range.base(), unit), "cuMemUnmap");
    range.ForgetMappings();
    return id;
  };
  const unsigned long long ids[] = {map_and_ask(first), map_and_ask(second), map_and_ask(first)};
  answer.detail["ids"] = ids;
  answer.observed = "first handle " + std::to_string(ids[0]) + ", second " +
                    std::to_string(ids[1]) + ", first again " + std::to_string(ids[2]);
  answer.agrees = ids[0] != ids[1];
  return answer;
}

}  // namespace weir::gpu_check
