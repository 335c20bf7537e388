// SPDX-License-Identifier: MIT
//
// weir::RemapObserver: a function that is told what Weir does to its addresses, for C++ programs.
//
//   weir::RemapObserver observer([&](int device, void* address, std::size_t bytes,
//                                    weir_remap_event_t event) { ... });
//
// When it is called and what it may call stands in weir/weir.h (weir_observe_remap). It must not
// throw. Failures of the constructor are exceptions (weir/error.h).
#ifndef WEIR_REMAP_OBSERVER_H_
#define WEIR_REMAP_OBSERVER_H_

#include <cstddef>
#include <functional>
#include <utility>

#include "weir/error.h"
#include "weir/weir.h"

namespace weir {

class [[nodiscard]] RemapObserver {
 public:
  using Function =
      std::function<void(int device, void* address, std::size_t bytes, weir_remap_event_t event)>;

  explicit RemapObserver(Function function) : function_(std::move(function)) {
    ThrowIfFailed(weir_observe_remap(&Call, this));
  }
  // No other thread may be inside a call of Weir that changes mappings.
  ~RemapObserver() { weir_unobserve_remap(&Call, this); }
  RemapObserver(const RemapObserver&) = delete;
  RemapObserver& operator=(const RemapObserver&) = delete;

 private:
  static void Call(int device, void* address, std::size_t bytes, int event, void* self) {
    static_cast<RemapObserver*>(self)->function_(device, address, bytes,
                                                 static_cast<weir_remap_event_t>(event));
  }

  const Function function_;
};

}  // namespace weir

#endif  // WEIR_REMAP_OBSERVER_H_
