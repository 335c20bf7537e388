// HeapError: the result of a heap operation, in the terms of the C API.
#ifndef WEIR_POOL_HEAP_ERROR_H_
#define WEIR_POOL_HEAP_ERROR_H_

#include <string>
#include <utility>

#include "weir/weir.h"

namespace weir {

struct [[nodiscard]] HeapError {
  HeapError() = default;
  HeapError(weir_status_t c, std::string t) : code(c), text(std::move(t)) {}
  bool ok() const { return code == WEIR_OK; }

  weir_status_t code = WEIR_OK;
  std::string text;  // what was wrong and what to do
};

}  // namespace weir

#endif  // WEIR_POOL_HEAP_ERROR_H_
