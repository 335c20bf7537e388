#include "settings.h"

#include <c10/util/env.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <sstream>
#include <utility>

namespace weir::torch_plugin {
namespace {

// Expandable segments hold about 2 % more than models ask for; Weir's default allows 5 %, for fewer
// calls of the driver while a program starts.
constexpr const char* kGrowth = "soft_limit:0.02";

constexpr size_t kLeastBlock = c10::CachingAllocator::kMinBlockSize;

void ReadRounding() {
  const auto& divisions = AcceleratorAllocatorConfig::roundup_power2_divisions();
  rounds_sizes.store(
      std::any_of(divisions.begin(), divisions.end(), [](size_t each) { return each > 1; }));
}

}  // namespace

std::string OptionsFromSettings() {
  std::ostringstream options;
  const std::string own = c10::utils::get_env("WEIR_CONF").value_or("");
  const bool limits_growth =
      own.find("soft_limit") != std::string::npos || own.find("mode:") != std::string::npos;
  options << (limits_growth ? "" : kGrowth);
  const double threshold = AcceleratorAllocatorConfig::garbage_collection_threshold();
  if (threshold > 0) options << ",gc_threshold:" << threshold;
  if (c10::utils::has_env("PYTORCH_NO_CUDA_MEMORY_CACHING")) options << ",mode:passthrough";
  const std::string text = options.str();
  return text.starts_with(',') ? text.substr(1) : text;
}

bool NamesBackend() {
  const std::string settings = c10::CachingAllocator::getAllocatorSettings();
  return settings.find("backend") != std::string::npos;
}

size_t RoundUp(size_t bytes) {
  const size_t divisions = AcceleratorAllocatorConfig::roundup_power2_divisions(bytes);
  if (divisions <= 1 || bytes <= kLeastBlock * divisions) return bytes;
  // The next multiple of the power of two below, cut into so many parts.
  const size_t power = std::bit_floor(bytes);
  if (power == bytes) return bytes;
  const size_t part = power / divisions;
  return part == 0 ? 2 * power : (bytes + part - 1) / part * part;
}

void FollowSettings() {
  ReadRounding();
  static const auto& before = *new std::function<void(const std::string&)>(
      AcceleratorAllocatorConfig::getConfigParserHook());
  AcceleratorAllocatorConfig::getConfigParserHook() = [](const std::string& text) {
    if (before) before(text);
    ReadRounding();
  };
}

}  // namespace weir::torch_plugin
