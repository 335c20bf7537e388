#include "allocator/capi/last_error.h"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace weir::capi {
namespace {

constexpr size_t kTextBytes = 4000;

pthread_key_t text_key;  // has the texts freed with their threads

// The text lies outside the thread's own storage: a library that is loaded late, as Python loads
// this one, may have little of that (glibc keeps 1.6 KiB for all of them together). Made at a
// thread's first failure, and usable while other thread-local objects of an ending thread free
// memory.
constinit thread_local weir_status_t last_status = WEIR_OK;
constinit thread_local char* last_text = nullptr;

void DeleteText(void* text) {
  std::free(text);
  last_text = nullptr;
}

// Null if the host has no memory.
char* Text() {
  if (last_text != nullptr) return last_text;
  static const int failed = pthread_key_create(&text_key, &DeleteText);
  auto* text = static_cast<char*>(std::malloc(kTextBytes));
  if (text == nullptr) return nullptr;
  if (failed == 0) pthread_setspecific(text_key, text);
  last_text = text;
  return text;
}

}  // namespace

HeapError NullArgument(const char* name) {
  return {WEIR_ERROR_INVALID_ARGUMENT, absl::StrCat(name, " is NULL")};
}

int SetLast(weir_status_t code, const char* text) noexcept {
  if (code == WEIR_OK) return code;
  last_status = code;
  char* copy = Text();
  if (copy == nullptr) return code;
  const size_t length = std::min(std::strlen(text), kTextBytes - 1);
  std::memcpy(copy, text, length);
  copy[length] = '\0';
  return code;
}

int SetLast(const HeapError& error) noexcept { return SetLast(error.code, error.text.c_str()); }

const char* LastText() noexcept {
  if (last_text != nullptr) return last_text;
  return last_status == WEIR_OK ? "" : "the host has no memory left to say what was wrong";
}
weir_status_t LastStatus() noexcept { return last_status; }

}  // namespace weir::capi
