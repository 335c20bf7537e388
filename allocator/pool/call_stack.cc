#include "allocator/pool/call_stack.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace weir {
namespace {

std::string Demangled(const char* name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = status == 0 ? text : name;
  std::free(text);
  return result;
}

}  // namespace

CallStack CallStack::Take() {
  CallStack stack;
  stack.depth = backtrace(stack.frames.data(), kMostFrames);
  return stack;
}

std::vector<std::string> CallStack::Describe() const {
  std::vector<std::string> lines;
  for (int i = 0; i < depth; ++i) {
    // A return address may be the first byte behind the function that made the call.
    const char* at = static_cast<const char*>(frames[static_cast<size_t>(i)]) - 1;
    Dl_info info;
    if (dladdr(at, &info) == 0 || info.dli_fname == nullptr) {
      lines.push_back(absl::StrCat("0x", absl::Hex(reinterpret_cast<uintptr_t>(at))));
      continue;
    }
    const std::string file(info.dli_fname);
    const std::string place = absl::StrCat(
        file.substr(file.rfind('/') + 1), "+0x",
        absl::Hex(static_cast<uint64_t>(at - static_cast<const char*>(info.dli_fbase))));
    lines.push_back(info.dli_sname == nullptr
                        ? place
                        : absl::StrCat(Demangled(info.dli_sname), " (", place, ")"));
  }
  return lines;
}

}  // namespace weir
