// CallStack: where a large request came from. Taken without a lock; names are looked up only when a
// report is written.
#ifndef WEIR_POOL_CALL_STACK_H_
#define WEIR_POOL_CALL_STACK_H_

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace weir {

struct CallStack {
  static constexpr int kMostFrames = 24;

  static CallStack Take();
  // A line for each frame, the innermost first: the function, or the file and an offset where no
  // name is exported.
  std::vector<std::string> Describe() const;

  friend bool operator==(const CallStack& a, const CallStack& b) {
    return std::equal(a.frames.begin(), a.frames.begin() + a.depth, b.frames.begin(),
                      b.frames.begin() + b.depth);
  }
  friend bool operator<(const CallStack& a, const CallStack& b) {
    return std::lexicographical_compare(a.frames.begin(), a.frames.begin() + a.depth,
                                        b.frames.begin(), b.frames.begin() + b.depth);
  }

  int depth = 0;
  std::array<void*, kMostFrames> frames{};
};

}  // namespace weir

#endif  // WEIR_POOL_CALL_STACK_H_
