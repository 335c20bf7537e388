// Check: one question about the driver that its documentation leaves open, and what Weir assumes.
//
// To add one: write a function of this signature in the file of its subject (or a new one), declare
// it in checks.h, and add its row to check_table.cc.
#ifndef WEIR_TOOLS_GPU_CHECK_CHECK_H_
#define WEIR_TOOLS_GPU_CHECK_CHECK_H_

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace weir::gpu_check {

class Gpu;

struct Answer {
  std::string observed;        // one line
  std::optional<bool> agrees;  // with what Weir assumes; empty: not decided here
  nlohmann::json detail = nlohmann::json::object();
};

struct Check {
  const char* name;  // short and lasting: results of different machines are compared by it
  const char* question;
  const char* assumed;
  // May throw DriverFailure. Leaves nothing behind on the device.
  Answer (*run)(const Gpu& gpu);
};

// In the order in which they run: those with spinning kernels come last.
const std::vector<Check>& AllChecks();

}  // namespace weir::gpu_check

#endif  // WEIR_TOOLS_GPU_CHECK_CHECK_H_
