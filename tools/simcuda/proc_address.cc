// cuGetProcAddress: from (base name, CUDA version, stream flavour) to a function, over the table of
// entry_points.inc. The rules are those of cuda.h 13.0 at cuGetProcAddress.
#include <string_view>

#include "tools/simcuda/entry.h"
#include "tools/simcuda/faces.h"
#include "tools/simcuda/simulator.h"

namespace weir::sim {
namespace {

struct Abi {
  std::string_view name;
  int version;
  bool per_thread;
  void* function;
};

// Entry::Call must have exactly the type that the caller will use.
template <typename Pfn, typename Function>
void* Checked(Function function) {
  static_assert(std::is_same_v<Pfn, Function>);
  return reinterpret_cast<void*>(function);
}

const Abi kAbis[] = {
// No macro between these and the table: cuda.h defines many of the names as macros, and an argument
// that is passed on would be expanded.
#define ABI(name, version, elf_name, implementation) \
  {#name, version, false,                            \
   Checked<PFN_##name##_v##version>(&Entry<kEntry_##name, &implementation, false>::Call)},
#define ABI_PTSZ(name, version, elf_name, implementation) \
  {#name, version, true,                                  \
   Checked<PFN_##name##_v##version##_ptsz>(&Entry<kEntry_##name, &implementation, true>::Call)},
#define ABI_PTDS(name, version, elf_name, implementation) \
  {#name, version, true,                                  \
   Checked<PFN_##name##_v##version##_ptds>(&Entry<kEntry_##name, &implementation, true>::Call)},
#include "tools/simcuda/entry_points.inc"
};

constexpr cuuint64_t kKnownFlags =
    CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

// The newest ABI up to both versions; per-thread variants first where they are wanted.
const Abi* Find(std::string_view name, int version, int driver_version, bool per_thread,
                bool* known) {
  const Abi* best = nullptr;
  *known = false;
  for (const Abi& abi : kAbis) {
    if (abi.name != name || abi.version > driver_version) continue;
    *known = true;
    if (abi.version > version || (abi.per_thread && !per_thread)) continue;
    const bool better = best == nullptr || (abi.per_thread && !best->per_thread) ||
                        (abi.per_thread == best->per_thread && abi.version > best->version);
    if (better) best = &abi;
  }
  return best;
}

}  // namespace

CUresult SimGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags,
                           CUdriverProcAddressQueryResult* status) {
  if (symbol == nullptr || function == nullptr || (flags & ~kKnownFlags) != 0 ||
      flags == kKnownFlags) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int driver_version = Simulator::Get().config().driver_version;
  if (version > driver_version) return CUDA_ERROR_INVALID_VALUE;
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  bool known = false;
  const Abi* found = Find(symbol, version, driver_version, per_thread, &known);
  *function = found == nullptr ? nullptr : found->function;
  if (status != nullptr) {
    *status = found != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
              : known          ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                               : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return CUDA_SUCCESS;
}

// The four-argument ABI has no status, so it says by its result that nothing was found.
CUresult SimGetProcAddressV1(const char* symbol, void** function, int version, cuuint64_t flags) {
  const CUresult result = SimGetProcAddress(symbol, function, version, flags, nullptr);
  if (result == CUDA_SUCCESS && *function == nullptr) return CUDA_ERROR_NOT_FOUND;
  return result;
}

}  // namespace weir::sim

extern "C" CUresult simcuda_get_proc_address(const char* symbol, void** function, int version,
                                             cuuint64_t flags,
                                             CUdriverProcAddressQueryResult* status) {
  using weir::sim::Entry;
  return Entry<weir::sim::kEntry_cuGetProcAddress, &weir::sim::SimGetProcAddress, false>::Call(
      symbol, function, version, flags, status);
}

extern "C" void* simcuda_find_entry(const char* name, int version, int per_thread) {
  bool known = false;
  const weir::sim::Abi* found = weir::sim::Find(name, version, version, per_thread != 0, &known);
  return found == nullptr ? nullptr : found->function;
}
