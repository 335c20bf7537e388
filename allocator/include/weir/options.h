// SPDX-License-Identifier: MIT
//
// Weir's options for C++ programs. The same as WEIR_CONF, and wins over it.
//
//   weir::Options options;
//   options.device = "sim";
//   options.sim_memory_bytes = std::uint64_t{24} << 30;
//   weir::Configure(options);  // before the first allocation
#ifndef WEIR_OPTIONS_H_
#define WEIR_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "weir/error.h"
#include "weir/weir.h"

namespace weir {

// What is not set keeps the environment's value or the default.
struct Options {
  std::optional<std::string> device;  // "cuda", or "sim" for the simulated device
  std::optional<std::uint64_t> sim_memory_bytes;
  std::optional<int> sim_devices;

  // "default"; "tight" for the least memory; "serving"; "passthrough" sends every request straight
  // to the driver. README.md says what each costs.
  std::optional<std::string> mode;
  // Whether physical memory is mapped (VMM); if not, all memory comes from cuMemAlloc.
  std::optional<bool> vmm;
  // What Weir may reserve on each device.
  std::optional<std::uint64_t> memory_limit_bytes;

  // Further options in text form, for example "marker_bytes:16MiB,soft_limit:0.1".
  std::string more;

  // "key:value,key:value"
  std::string ToString() const {
    std::string text;
    const auto add = [&text](const std::string& item) {
      if (!text.empty()) text += ',';
      text += item;
    };
    if (device) add("device:" + *device);
    if (sim_memory_bytes) add("sim_memory:" + std::to_string(*sim_memory_bytes));
    if (sim_devices) add("sim_devices:" + std::to_string(*sim_devices));
    if (mode) add("mode:" + *mode);
    if (vmm) add(*vmm ? "vmm:on" : "vmm:off");
    if (memory_limit_bytes) add("memory_limit:" + std::to_string(*memory_limit_bytes));
    if (!more.empty()) add(more);
    return text;
  }
};

// Throws weir::Error if an option is wrong or Weir is in use already.
inline void Configure(const Options& options) {
  ThrowIfFailed(weir_configure(options.ToString().c_str()));
}

}  // namespace weir

#endif  // WEIR_OPTIONS_H_
