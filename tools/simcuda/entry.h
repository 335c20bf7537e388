// The wrapper through which every call of an entry point goes. In this order: counts the call;
// refuses it inside a host function (800) and in a forked child (3); takes the simulator's lock;
// refuses it after Deinitialize (4); applies injected faults; checks initialization (3), sticky
// errors, the current context (201) and stream captures (900); runs the implementation; charges the
// modelled cost.
//
// An implementation is a plain function with the driver's signature, declared by entry_points.h. It
// runs with the lock held and finds everything through Simulator::Get().
#ifndef WEIR_TOOLS_SIMCUDA_ENTRY_H_
#define WEIR_TOOLS_SIMCUDA_ENTRY_H_

#include <cuda.h>

#include <cstdint>
#include <exception>
#include <type_traits>

#include "tools/simcuda/entry_points.h"

namespace weir::sim {

// What an implementation reports to the cost model about its work. Only inside an entry.
void ChargeHandles(uint64_t handles);
void ChargeBytes(uint64_t bytes);

// Of OnNextCall.
void ForgetHook();

class EntryScope {
 public:
  explicit EntryScope(EntryId id);
  ~EntryScope();  // charges the cost and gives up the lock
  EntryScope(const EntryScope&) = delete;
  EntryScope& operator=(const EntryScope&) = delete;

  // CUDA_SUCCESS if the implementation may run.
  CUresult refusal() const { return refusal_; }

 private:
  CUresult Check();

  const EntryId id_;
  bool locked_ = false;
  CUresult refusal_ = CUDA_SUCCESS;
};

// Argument translation of the per-thread default stream variants.
template <bool kPerThread, typename T>
T EntryArgument(T argument) {
  if constexpr (kPerThread && std::is_same_v<T, CUstream>) {
    return argument == nullptr ? CU_STREAM_PER_THREAD : argument;
  } else {
    return argument;
  }
}

// Entry<id, &SimFoo, per_thread>::Call is what the driver tables hand out.
template <EntryId kId, auto kImplementation, bool kPerThread>
struct Entry;

template <EntryId kId, typename... Args, CUresult (*kImplementation)(Args...), bool kPerThread>
struct Entry<kId, kImplementation, kPerThread> {
  static CUresult Call(Args... args) {
    try {
      const EntryScope scope(kId);
      if (scope.refusal() != CUDA_SUCCESS) return scope.refusal();
      return kImplementation(EntryArgument<kPerThread>(args)...);
    } catch (const std::exception&) {  // the system refused the simulator memory
      return CUDA_ERROR_OPERATING_SYSTEM;
    }
  }
};

}  // namespace weir::sim

#endif  // WEIR_TOOLS_SIMCUDA_ENTRY_H_
