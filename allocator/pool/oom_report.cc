#include "allocator/pool/oom_report.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "allocator/base/bytes.h"

namespace weir {
namespace {

using Reason = OomReport::Reason;

// What holds most, in words.
std::string LargestHolder(const OomReport& report) {
  const auto named = std::find_if(report.by_tag.begin(), report.by_tag.end(),
                                  [](const OomReport::Holder& h) { return !h.name.empty(); });
  if (named != report.by_tag.end()) {
    return absl::StrCat("tag '", named->name, "' holds ", FormatBytes(named->bytes));
  }
  if (report.by_size.empty()) return "";
  const OomReport::Holder& size = report.by_size.front();
  return absl::StrCat(size.blocks, size.blocks == 1 ? " block of " : " blocks of ",
                      FormatBytes(size.bytes_each),
                      size.blocks == 1 ? " is the largest holder" : " are the largest holders");
}

}  // namespace

const char* NameOf(Reason reason) {
  switch (reason) {
    case Reason::kPartlyUsed:
      return "partly_used";
    case Reason::kOtherStream:
      return "other_stream";
    case Reason::kNotComplete:
      return "not_complete";
    case Reason::kCapturePool:
      return "capture_pool";
    case Reason::kSmallObjects:
      return "small_objects";
    case Reason::kPinned:
      return "pinned";
    case Reason::kNotMoved:
      return "not_moved";
  }
  return "";
}

std::string FormatBytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

std::vector<OomReport::Change> ChangesThatHelp(const OomReport& r) {
  std::vector<OomReport::Change> changes;
  const uint64_t missing = r.ladder.missing;
  const auto add = [&](uint64_t bytes, auto&&... text) {
    if (bytes == 0) return;
    changes.push_back({absl::StrCat(text...), bytes, bytes >= missing});
  };
  // Bytes between blocks in use: only a bound, how much helps depends on where those lie.
  const auto add_up_to = [&](uint64_t bytes, auto&&... text) {
    if (bytes > 0) changes.push_back({absl::StrCat(text...), bytes, false});
  };
  if (r.bytes > r.total) {
    changes.push_back(
        {absl::StrCat("ask for less: the device has only ", FormatBytes(r.total)), 0, true});
    return changes;
  }
  if (r.ladder.source_refused) {
    changes.push_back({absl::StrCat("the source of the pool returned NULL for a segment of ",
                                    FormatBytes(missing),
                                    ": free blocks of the pool, or let the source have more"),
                       missing, true});
    return changes;
  }
  if (missing == 0) {
    changes.push_back(
        {"give idle memory back (weir_empty_cache): no addresses are left for a "
         "block of this size",
         0, true});
    return changes;
  }
  if (const uint64_t more = r.ladder.missing_in_pool; more > 0) {
    add(more, "the limit of the capture pool is ", FormatBytes(r.pool_limit), ": ",
        FormatBytes(more), " more would ", more >= missing ? "do" : "help",
        " (weir_pool_set_limit)");
  }
  const uint64_t limit_room = r.memory_limit > r.reserved ? r.memory_limit - r.reserved : 0;
  if (r.memory_limit < r.total && limit_room < r.ladder.driver_free) {
    const uint64_t beyond =
        std::min(r.ladder.driver_free, r.total - std::min(r.total, r.reserved)) - limit_room;
    add(std::min(beyond, missing), "memory_limit is ", FormatBytes(r.memory_limit), ": ",
        FormatBytes(std::min(beyond, missing)), " more would ", beyond >= missing ? "do" : "help");
  }
  for (const OomReport::Waiting& waiting : r.waiting) {
    add(waiting.bytes, "wait for ", waiting.stream, ": ", FormatBytes(waiting.bytes), " deferred",
        r.is_captured ? " (a stream capture forbids Weir to wait)" : "");
  }
  const auto unusable = [&](Reason reason) { return r.of(reason).bytes; };
  add(unusable(Reason::kNotComplete),
      "wait for the streams that freed idle memory: ", FormatBytes(unusable(Reason::kNotComplete)),
      r.is_captured ? " (a stream capture forbids Weir to wait)" : "");
  const bool may_borrow = r.rungs_allowed.borrow && r.rungs_allowed.wait;
  if (r.of(Reason::kOtherStream).largest >= r.bytes && r.pool == 0) {
    add(std::max(missing, unusable(Reason::kOtherStream)),
        may_borrow ? "wait for the other streams: "
                   : "let streams borrow (borrow:pressure, and ladder with borrow and wait): ",
        FormatBytes(unusable(Reason::kOtherStream)), " are free between other streams' blocks");
  }
  if (r.pool == 0) {
    add_up_to(unusable(Reason::kCapturePool), "release capture pools that are not needed: ",
              FormatBytes(unusable(Reason::kCapturePool)), " are idle there");
  }
  add(unusable(Reason::kPinned),
      "unpin ranges that nobody uses: ", FormatBytes(unusable(Reason::kPinned)),
      " lie idle in them (weir_unpin_range)");
  add(unusable(Reason::kNotMoved), "let Weir move idle memory (compaction:on, weir_observe_remap) ",
      "or call weir_empty_cache: ", FormatBytes(unusable(Reason::kNotMoved)), " lie idle");
  if (r.may_map && !r.may_merge) {
    add_up_to(unusable(Reason::kPartlyUsed), "mode:tight would free up to ",
              FormatBytes(unusable(Reason::kPartlyUsed)), " between blocks in use");
  }
  if (limit_room >= r.ladder.driver_free) {
    add(r.outside(), "other processes, CUDA contexts and other libraries hold ",
        FormatBytes(r.outside()), " of the device: ", FormatBytes(missing), " less would do");
  }
  const std::string holder = LargestHolder(r);
  add(r.active, "free ", FormatBytes(missing), ", in whole granules, of the ",
      FormatBytes(r.active), " in use", holder.empty() ? "" : "; ", holder);
  std::stable_partition(changes.begin(), changes.end(),
                        [](const OomReport::Change& change) { return change.is_enough; });
  return changes;
}

std::string OomSummary(const OomReport& r) {
  if (r.bytes > r.total) {
    return absl::StrCat(r.bytes, " bytes asked, but device ", r.device, " has ", r.total);
  }
  const uint64_t free = r.reserved - r.active;
  std::string text =
      absl::StrCat("device ", r.device, " is out of memory: ", r.bytes, " bytes asked; Weir holds ",
                   r.reserved, " (", r.active, " in use, ", r.idle, " idle, ",
                   free - std::min(free, r.idle), " free but unusable)");
  if (r.ladder.driver_known) {
    absl::StrAppend(&text, ", the driver has ", r.ladder.driver_free, " of ", r.total, " free");
  }
  if (r.memory_limit != UINT64_MAX) absl::StrAppend(&text, ", the limit is ", r.memory_limit);
  if (!r.changes.empty()) absl::StrAppend(&text, ". What would help: ", r.changes.front().text);
  return text;
}

}  // namespace weir
