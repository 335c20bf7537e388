// Tags: names that a thread gives to what it allocates, for reports.
//
// A tag is a small number for a name; names are kept for the life of the process. Each thread has a
// stack of tags; blocks of their own (more than 32 KiB) remember its top, which costs a hit one
// load and one store to a line that it writes anyway.
#ifndef WEIR_POOL_TAGS_H_
#define WEIR_POOL_TAGS_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace weir {

class Tags {
 public:
  static constexpr uint16_t kNone = 0;

  // The calling thread's newest tag.
  static uint16_t current() { return current_; }
  // False if there are too many names (65,535 in the process).
  static bool Push(std::string_view name);
  // False if the thread has pushed none.
  static bool Pop();
  // "" for kNone.
  static std::string NameOf(uint16_t tag);

 private:
  static constinit thread_local uint16_t current_ __attribute__((tls_model("initial-exec")));
};

}  // namespace weir

#endif  // WEIR_POOL_TAGS_H_
