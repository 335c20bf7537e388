#include "allocator/capi/last_error.h"

#include <algorithm>
#include <cstring>

namespace weir::capi {
namespace {

// No destructor: usable while other thread-local objects of an ending thread free memory.
struct LastError {
  weir_status_t status;
  char text[4000];
};
thread_local LastError last_error;

}  // namespace

int SetLast(weir_status_t code, const char* text) noexcept {
  if (code == WEIR_OK) return code;
  last_error.status = code;
  const size_t length = std::min(std::strlen(text), sizeof(last_error.text) - 1);
  std::memcpy(last_error.text, text, length);
  last_error.text[length] = '\0';
  return code;
}

int SetLast(const HeapError& error) noexcept { return SetLast(error.code, error.text.c_str()); }

const char* LastText() noexcept { return last_error.text; }
weir_status_t LastStatus() noexcept { return last_error.status; }

}  // namespace weir::capi
