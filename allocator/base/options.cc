#include "allocator/base/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "allocator/base/env.h"

namespace weir {
namespace {

// A number with digits first; no sign, no "inf" or "nan", no exponent.
bool ParseNumber(std::string_view text, double* value) {
  if (text.empty() || text[0] < '0' || text[0] > '9') return false;
  const char* end = text.data() + text.size();
  double parsed = 0;
  const auto [stop, code] = std::from_chars(text.data(), end, parsed, std::chars_format::fixed);
  if (code != std::errc() || stop != end) return false;
  *value = parsed;
  return true;
}

bool ParseInteger(std::string_view text, uint64_t* value) {
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, *value);
  return code == std::errc() && stop == end;
}

bool ParseSwitch(std::string_view text, bool* on) {
  *on = text == "on";
  return *on || text == "off";
}

template <auto kMember>
bool SetBytes(std::string_view text, ProcessOptions* options) {
  return ParseBytes(text, &(options->heap.*kMember));
}

bool SetSimMemory(std::string_view text, ProcessOptions* options) {
  return ParseBytes(text, &options->sim_memory) && options->sim_memory > 0;
}

bool SetSimDevices(std::string_view text, ProcessOptions* options) {
  uint64_t count = 0;
  if (!ParseInteger(text, &count) || count < 1 || count > 16) return false;
  options->sim_devices = static_cast<int>(count);
  return true;
}

bool SetSimLag(std::string_view text, ProcessOptions* options) {
  uint64_t operations = 0;
  if (!ParseInteger(text, &operations) || operations > 1'000'000) return false;
  options->sim_lag = static_cast<int64_t>(operations);
  return true;
}

bool SetHandleDivisor(std::string_view text, ProcessOptions* options) {
  return ParseInteger(text, &options->heap.handle_divisor) && options->heap.handle_divisor > 0;
}

// A number from 0 to kHigh.
template <auto kMember, int kHigh>
bool SetNumber(std::string_view text, ProcessOptions* options) {
  double value = 0;
  if (!ParseNumber(text, &value) || value > kHigh) return false;
  options->heap.*kMember = value;
  return true;
}

// A preset for what the other options say; ParseOptions reads it before them.
bool SetMode(std::string_view text, ProcessOptions* options) {
  options->passthrough = text == "passthrough";
  const HeapOptions initial;
  HeapOptions& heap = options->heap;
  const bool tight = text == "tight", serving = text == "serving";
  heap.soft_limit = tight ? 0.015 : initial.soft_limit;
  heap.max_handle_bytes = tight || serving ? 2 * kMiB : initial.max_handle_bytes;
  heap.soft_limit_until = tight ? 0.2 : initial.soft_limit_until;
  heap.guard_refill_us = tight ? 20 : initial.guard_refill_us;  // its moves are of more handles
  heap.stitch = tight;
  heap.mesh = tight ? Meshing::kPressure : Meshing::kNever;
  heap.share_boundaries = serving;
  return options->passthrough || tight || serving || text == "default";
}

// One word of several.
template <typename Value>
bool ParseWord(std::string_view text,
               std::initializer_list<std::pair<std::string_view, Value>> words, Value* value) {
  for (const auto& [word, meaning] : words) {
    if (text != word) continue;
    *value = meaning;
    return true;
  }
  return false;
}

bool SetDevice(std::string_view text, ProcessOptions* options) {
  using Kind = ProcessOptions::DeviceKind;
  return ParseWord<Kind>(text, {{"cuda", Kind::kCuda}, {"sim", Kind::kSimulated}},
                         &options->device);
}

bool SetMesh(std::string_view text, ProcessOptions* options) {
  return ParseWord<Meshing>(text,
                            {{"never", Meshing::kNever},
                             {"compact", Meshing::kCompact},
                             {"pressure", Meshing::kPressure}},
                            &options->heap.mesh);
}

template <bool HeapOptions::*kMember>
bool SetSwitch(std::string_view text, ProcessOptions* options) {
  return ParseSwitch(text, &(options->heap.*kMember));
}

bool SetBorrow(std::string_view text, ProcessOptions* options) {
  return ParseWord<Borrowing>(text,
                              {{"never", Borrowing::kNever},
                               {"pressure", Borrowing::kPressure},
                               {"small", Borrowing::kSmall}},
                              &options->heap.borrow);
}

bool SetCompaction(std::string_view text, ProcessOptions* options) {
  return ParseWord<Compaction>(
      text, {{"auto", Compaction::kAuto}, {"on", Compaction::kOn}, {"off", Compaction::kOff}},
      &options->heap.compaction);
}

// A number with a decimal point and no unit is a fraction of the device's memory, anything else
// bytes.
template <auto kFraction, auto kBytes>
bool SetBytesOrFraction(std::string_view text, ProcessOptions* options) {
  double fraction = 0;
  if (text.find('.') != std::string_view::npos && ParseNumber(text, &fraction)) {
    options->*kFraction = fraction;
    return fraction > 0 && fraction <= 1;
  }
  options->*kFraction = 0;
  return ParseBytes(text, &(options->heap.*kBytes));
}

// Names of rungs, joined by '+', or "none".
bool SetLadder(std::string_view text, ProcessOptions* options) {
  LadderOptions& ladder = options->heap.ladder;
  ladder = {false, false, false, false};
  if (text == "none") return true;
  for (;;) {
    const size_t plus = text.find('+');
    const std::string_view name = text.substr(0, plus);
    bool* rung = name == "borrow"      ? &ladder.borrow
                 : name == "wait"      ? &ladder.wait
                 : name == "mesh"      ? &ladder.mesh
                 : name == "callbacks" ? &ladder.callbacks
                                       : nullptr;
    if (rung == nullptr) return false;
    *rung = true;
    if (plus == std::string_view::npos) return true;
    text.remove_prefix(plus + 1);
  }
}

struct Knob {
  const char* key;
  const char* values;
  const char* initial;
  const char* meaning;
  bool (*set)(std::string_view text, ProcessOptions* options);
};

constexpr Knob kKnobs[] = {
    {"device", "cuda|sim", "cuda", "the CUDA driver or the simulated device", &SetDevice},
    {"sim_memory", "BYTES", "24GiB", "memory of each simulated device", &SetSimMemory},
    {"sim_devices", "1..16", "1", "number of simulated devices", &SetSimDevices},
    {"sim_lag", "OPERATIONS", "256",
     "how far a simulated device is behind the host; asking does not hurry it", &SetSimLag},
    {"mode", "default|tight|serving|passthrough", "default",
     "presets: tight: least memory (stitch, mesh, soft_limit:0.015, soft_limit_until:0.2, "
     "max_handle:2MiB, "
     "guard_refill_us:20); serving: "
     "boundary, max_handle:2MiB; passthrough: every request goes to the driver",
     &SetMode},
    {"vmm", "on|off", "on", "off: cuMemAlloc only, no mapping of physical memory",
     &SetSwitch<&HeapOptions::vmm>},
    {"memory_limit", "BYTES|0.0..1.0", "none",
     "most that may be reserved on a device, or a fraction of it",
     &SetBytesOrFraction<&ProcessOptions::memory_limit_fraction, &HeapOptions::memory_limit>},
    {"preallocate", "BYTES|0.0..1.0", "0",
     "made when a device is first used, and kept; or a fraction of its memory",
     &SetBytesOrFraction<&ProcessOptions::preallocate_fraction, &HeapOptions::preallocate>},
    {"release_threshold", "BYTES", "none",
     "idle memory beyond this is given back at the next miss, marker or trim, without a wait",
     &SetBytes<&HeapOptions::release_threshold>},
    {"idle_decay", "SECONDS", "0", "so is memory that was not used for so long; 0: never",
     &SetNumber<&HeapOptions::idle_decay, 1'000'000'000>},
    {"gc_threshold", "FRACTION", "0",
     "so is idle memory while more than this part of the device (or limit) is reserved; 0: never",
     &SetNumber<&HeapOptions::gc_threshold, 1>},
    {"ladder", "none|borrow+wait+mesh+callbacks", "borrow+wait+mesh+callbacks",
     "what a miss may try before it fails", &SetLadder},
    {"record_stacks", "BYTES", "0",
     "keep the call stack of requests from this size, for reports; 0: none",
     &SetBytes<&HeapOptions::record_stacks>},
    {"soft_limit", "FRACTION", "0.05", "reserve so much above the peak before idle memory is moved",
     &SetNumber<&HeapOptions::soft_limit, 10>},
    {"soft_limit_max", "FRACTION", "0.15", "the same while moving memory has been too costly",
     &SetNumber<&HeapOptions::soft_limit_max, 10>},
    {"soft_limit_slack", "BYTES", "8MiB", "added to the soft limit",
     &SetBytes<&HeapOptions::soft_limit_slack>},
    {"soft_limit_until", "FRACTION", "0.8",
     "no soft limit once the peak is so much of the device's memory or of the limit",
     &SetNumber<&HeapOptions::soft_limit_until, 1>},
    {"guard_refill_us", "MICROSECONDS", "5", "driver time that a large request earns for moving",
     &SetNumber<&HeapOptions::guard_refill_us, 1'000'000>},
    {"guard_burst_ms", "MILLISECONDS", "100", "most that can be saved up",
     &SetNumber<&HeapOptions::guard_burst_ms, 1'000'000>},
    {"handle_divisor", "1..", "512",
     "a new physical handle is at most reserved / this (and one granule at least)",
     &SetHandleDivisor},
    {"max_handle", "BYTES", "128MiB", "and at most this",
     &SetBytes<&HeapOptions::max_handle_bytes>},
    {"compaction", "auto|on|off", "auto",
     "move idle memory; auto: unless a library that may register it unseen (RDMA) is loaded",
     &SetCompaction},
    {"stitch", "on|off", "off",
     "repeated sequences of requests get idle memory mapped at further addresses, which are kept",
     &SetSwitch<&HeapOptions::stitch>},
    {"alias_bound", "FACTOR", "8", "most of such addresses kept, in multiples of reserved memory",
     &SetNumber<&HeapOptions::alias_bound, 64>},
    {"mesh", "never|compact|pressure", "never",
     "merges partly used granules: in weir_compact, or also before a request would fail; it copies "
     "memory in use, so no other thread may give the device work meanwhile",
     &SetMesh},
    {"boundary", "on|off", "off",
     "a large block may begin and end in free parts of granules that others use",
     &SetSwitch<&HeapOptions::share_boundaries>},
    {"marker_bytes", "BYTES", "256MiB",
     "that wait for a stream before it records a marker; twice as many of its own",
     &SetBytes<&HeapOptions::marker_bytes>},
    {"borrow", "never|pressure|small", "pressure",
     "when a stream takes free parts of granules that another stream uses", &SetBorrow},
    {"thread_cache", "BYTES", "8MiB", "small blocks a thread keeps of one stream; 0: none",
     &SetBytes<&HeapOptions::thread_cache_bytes>},
};

// A line for each key: its values, default and meaning.
std::string KeyList() {
  std::string list;
  for (const Knob& knob : kKnobs) {
    list += std::string("\n  ") + knob.key + ":" + knob.values + "  (" + knob.initial + ")  " +
            knob.meaning;
  }
  return list;
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\n";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

const Knob* FindKnob(std::string_view key) {
  for (const Knob& knob : kKnobs) {
    if (key == knob.key) return &knob;
  }
  return nullptr;
}

}  // namespace

HeapOptions ProcessOptions::ForDevice(uint64_t total_bytes) const {
  HeapOptions result = heap;
  if (memory_limit_fraction > 0) {
    result.memory_limit =
        static_cast<uint64_t>(memory_limit_fraction * static_cast<double>(total_bytes));
  }
  if (preallocate_fraction > 0) {
    result.preallocate =
        static_cast<uint64_t>(preallocate_fraction * static_cast<double>(total_bytes));
  }
  return result;
}

bool ParseBytes(std::string_view text, uint64_t* bytes) {
  struct Unit {
    std::string_view name;
    uint64_t factor;
  };
  static constexpr Unit kUnits[] = {
      {"KiB", kKiB}, {"MiB", kMiB},     {"GiB", kGiB},         {"TiB", kGiB << 10},
      {"KB", 1000},  {"MB", 1'000'000}, {"GB", 1'000'000'000}, {"TB", 1'000'000'000'000},
      {"B", 1},
  };
  uint64_t factor = 1;
  for (const Unit& unit : kUnits) {
    if (!text.ends_with(unit.name)) continue;
    text.remove_suffix(unit.name.size());
    factor = unit.factor;
    break;
  }
  // Whole numbers exactly; a double holds 53 bits only.
  uint64_t whole = 0;
  if (ParseInteger(text, &whole)) {
    return !__builtin_mul_overflow(whole, factor, bytes);
  }
  double number = 0;
  if (factor == 1 || !ParseNumber(text, &number)) return false;
  const double product = std::floor(number * static_cast<double>(factor));
  if (product >= 0x1p64) return false;
  *bytes = static_cast<uint64_t>(product);
  return true;
}

bool ParseOptions(std::string_view text, ProcessOptions* options, std::string* error) {
  ProcessOptions result = *options;
  std::set<std::string_view> seen;
  std::vector<std::pair<const Knob*, std::string_view>> values;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view item = Trim(text.substr(0, comma));
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    if (item.empty()) continue;

    const size_t colon = item.find(':');
    const std::string_view key = Trim(item.substr(0, colon));
    const std::string_view value =
        colon == std::string_view::npos ? std::string_view() : Trim(item.substr(colon + 1));
    const Knob* knob = FindKnob(key);
    if (knob == nullptr) {
      *error = "unknown option '" + std::string(key) + "'. The options are" + KeyList();
      return false;
    }
    if (!seen.insert(key).second) {
      *error = "option '" + std::string(key) + "' is given twice";
      return false;
    }
    values.emplace_back(knob, value);
  }
  // The mode first: what else is given wins over the preset, in whatever order.
  std::stable_partition(values.begin(), values.end(),
                        [](const auto& item) { return item.first->set == &SetMode; });
  for (const auto& [knob, value] : values) {
    if (!knob->set(value, &result)) {
      *error = std::string("option '") + knob->key + "' cannot be '" + std::string(value) +
               "'; write " + knob->key + ":" + knob->values;
      return false;
    }
  }
  if (result.heap.soft_limit_max < result.heap.soft_limit) {
    const auto fraction = [](double value) {
      std::string digits = std::to_string(value);
      return digits.erase(digits.find_last_not_of('0') + 1);
    };
    *error = "option 'soft_limit_max' (" + fraction(result.heap.soft_limit_max) +
             ") must not be below 'soft_limit' (" + fraction(result.heap.soft_limit) +
             "): set both";
    return false;
  }
  *options = result;
  return true;
}

bool ReadOptionsFromEnvironment(ProcessOptions* options, std::string* error) {
  if (!ParseOptions(ReadEnvironment("WEIR_CONF"), options, error)) {
    *error = "WEIR_CONF: " + *error;
    return false;
  }
  const std::string disable = ReadEnvironment("WEIR_DISABLE");
  if (disable == "1") {
    options->passthrough = true;
  } else if (!disable.empty() && disable != "0") {
    *error =
        "WEIR_DISABLE is '" + disable + "'; it can be 1 (every request goes to the driver) or 0";
    return false;
  }
  return true;
}

}  // namespace weir
