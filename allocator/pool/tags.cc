#include "allocator/pool/tags.h"

#include <limits>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "allocator/base/mutex.h"

namespace weir {
namespace {

struct Names {
  Mutex mu;
  std::vector<std::string> by_tag ABSL_GUARDED_BY(mu) = {""};
  absl::flat_hash_map<std::string, uint16_t> tags ABSL_GUARDED_BY(mu) = {{"", Tags::kNone}};
};

Names& TheNames() {
  static Names* const names = new Names();
  return *names;
}

// The tags below the newest one.
thread_local std::vector<uint16_t> below;

}  // namespace

constinit thread_local uint16_t Tags::current_ = Tags::kNone;

bool Tags::Push(std::string_view name) {
  uint16_t tag = kNone;
  {
    Names& names = TheNames();
    MutexLock lock(names.mu);
    const std::string key(name);
    const auto found = names.tags.find(key);
    if (found != names.tags.end()) {
      tag = found->second;
    } else {
      if (names.by_tag.size() > std::numeric_limits<uint16_t>::max()) return false;
      tag = static_cast<uint16_t>(names.by_tag.size());
      names.by_tag.reserve(names.by_tag.size() + 1);
      names.tags.emplace(key, tag);
      names.by_tag.push_back(key);
    }
  }
  below.push_back(current_);
  current_ = tag;
  return true;
}

bool Tags::Pop() {
  if (below.empty()) return false;
  current_ = below.back();
  below.pop_back();
  return true;
}

std::string Tags::NameOf(uint16_t tag) {
  Names& names = TheNames();
  MutexLock lock(names.mu);
  return names.by_tag[tag];
}

}  // namespace weir
