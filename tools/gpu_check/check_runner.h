// Runs checks and writes down what they found: JSON and a table for people.
#ifndef WEIR_TOOLS_GPU_CHECK_CHECK_RUNNER_H_
#define WEIR_TOOLS_GPU_CHECK_CHECK_RUNNER_H_

#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/gpu_check/check.h"

namespace weir::gpu_check {

// One element of "checks". A check whose driver call fails is recorded with the error and agrees
// with nothing.
nlohmann::json RunCheck(const Gpu& gpu, const Check& check);

// Everything, in the form "weir-gpu-check/1". After an error that breaks the context the remaining
// checks are listed as not run. `progress` gets the result so far after each check.
nlohmann::json RunChecks(const Gpu& gpu, const std::vector<Check>& checks,
                         const std::function<void(const nlohmann::json&)>& progress);

// One line for one element of "checks", more with the details.
void PrintCheck(std::FILE* out, const nlohmann::json& check, bool details);

}  // namespace weir::gpu_check

#endif  // WEIR_TOOLS_GPU_CHECK_CHECK_RUNNER_H_
