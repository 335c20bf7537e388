// OomReport as text for people and as JSON for programs.
#include <algorithm>
#include <cstdio>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "allocator/pool/oom_report.h"

namespace weir {
namespace {

const char* Meaning(OomReport::Reason reason) {
  switch (reason) {
    case OomReport::Reason::kPartlyUsed:
      return "in pieces between blocks in use";
    case OomReport::Reason::kOtherStream:
      return "large enough, between blocks of other streams";
    case OomReport::Reason::kNotComplete:
      return "whole granules, but their stream's work is not complete";
    case OomReport::Reason::kCapturePool:
      return "in capture pools";
    case OomReport::Reason::kSmallObjects:
      return "kept for small objects, beside some in use";
    case OomReport::Reason::kPinned:
      return "in whole granules that are pinned";
    case OomReport::Reason::kNotMoved:
      return "in whole granules, but memory is not moved";
  }
  return "";
}

// Bytes of the character that text begins with, 0 if that is not UTF-8.
size_t CharacterLength(std::string_view text) {
  const auto byte = [&](size_t i) -> unsigned { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Longer than needed, half of a surrogate pair, beyond the last character.
  const bool is_none = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F) ||
                       (first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) > 0x8F);
  return is_none ? 0 : length;
}

// JSON whatever the text holds: tags are the program's.
std::string Quoted(std::string_view text) {
  std::string result = "\"";
  while (!text.empty()) {
    const size_t length = CharacterLength(text);
    const std::string_view character = text.substr(0, std::max<size_t>(length, 1));
    const char c = text.front();
    text.remove_prefix(character.size());
    if (length == 0) {
      result += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(c));
      result += escape;
    } else {
      result += character;
    }
  }
  return result + '"';
}

// Joins what fn writes for each element.
template <typename Range, typename Fn>
std::string Array(const Range& range, Fn fn) {
  std::string result = "[";
  for (const auto& each : range) {
    if (result.size() > 1) result += ',';
    result += fn(each);
  }
  return result + ']';
}

std::string OrNull(uint64_t limit) { return limit == UINT64_MAX ? "null" : absl::StrCat(limit); }

constexpr OomReport::Reason kAllReasons[] = {
    OomReport::Reason::kPartlyUsed,   OomReport::Reason::kOtherStream,
    OomReport::Reason::kNotComplete,  OomReport::Reason::kCapturePool,
    OomReport::Reason::kSmallObjects, OomReport::Reason::kPinned,
    OomReport::Reason::kNotMoved};
static_assert(std::size(kAllReasons) == OomReport::kReasons);

}  // namespace

std::string OomText(const OomReport& r) {
  std::string text = absl::StrCat("Out of memory no. ", r.number, " on device ", r.device,
                                  "\n\nAsked: ", r.bytes, " bytes (", FormatBytes(r.bytes),
                                  "), aligned to ", r.alignment, ", for ", r.stream);
  if (r.pool != 0) absl::StrAppend(&text, ", capture pool 0x", absl::Hex(r.pool));
  absl::StrAppend(&text, "\nMissing: ", FormatBytes(r.ladder.missing), " in whole granules\n");

  absl::StrAppend(&text, "\nDevice: ", FormatBytes(r.total));
  if (r.ladder.driver_known) {
    absl::StrAppend(&text, ", ", FormatBytes(r.ladder.driver_free), " free, ",
                    FormatBytes(r.outside()),
                    " held by other processes, CUDA contexts and other libraries");
  }
  absl::StrAppend(&text, "\nWeir: ", FormatBytes(r.reserved), " reserved, ", FormatBytes(r.active),
                  " in use, ", FormatBytes(r.idle), " idle in whole granules\n");
  absl::StrAppend(
      &text, "Limits: memory_limit ",
      r.memory_limit == UINT64_MAX ? std::string("none") : FormatBytes(r.memory_limit),
      r.pool_limit == UINT64_MAX ? std::string() : ", of the pool " + FormatBytes(r.pool_limit),
      "\n\nWhat was tried:\n");
  for (size_t i = 0; i < kLadderRungs; ++i) {
    const Ladder::Step& step = r.ladder.steps[i];
    absl::StrAppend(&text, "  ", kLadderRungNames[i], ": ",
                    step.tried ? "gained " + FormatBytes(step.gained) : std::string("not tried"),
                    "\n");
  }

  absl::StrAppend(&text, "\nFree but unusable:\n");
  const size_t nothing_yet = text.size();
  for (const OomReport::Reason reason : kAllReasons) {
    const OomReport::Unusable& u = r.of(reason);
    if (u.bytes == 0) continue;
    absl::StrAppend(&text, "  ", FormatBytes(u.bytes), " ", Meaning(reason), "; largest piece ",
                    FormatBytes(u.largest), "\n");
  }
  for (const OomReport::Waiting& w : r.waiting) {
    absl::StrAppend(&text, "  ", FormatBytes(w.bytes), " freed, but ", w.stream,
                    " may still use it\n");
  }
  if (text.size() == nothing_yet) text += "  nothing\n";

  const auto holders = [&](const char* title, const std::vector<OomReport::Holder>& list,
                           auto name) {
    if (list.empty()) return;
    absl::StrAppend(&text, "\nLargest holders by ", title, ":\n");
    for (const OomReport::Holder& h : list) {
      absl::StrAppend(&text, "  ", FormatBytes(h.bytes), " in ", h.blocks,
                      h.blocks == 1 ? " block" : " blocks", name(h), "\n");
    }
  };
  holders("tag", r.by_tag, [](const OomReport::Holder& h) {
    return h.name.empty() ? std::string(" without a tag") : ": " + h.name;
  });
  holders("size", r.by_size,
          [](const OomReport::Holder& h) { return absl::StrCat(" of ", h.bytes_each, " bytes"); });
  holders("call stack", r.by_stack, [](const OomReport::Holder& h) {
    std::string frames = " from";
    for (const std::string& frame : h.stack.Describe()) absl::StrAppend(&frames, "\n    ", frame);
    return frames;
  });

  absl::StrAppend(&text, "\nWhat would have helped:\n");
  for (const OomReport::Change& change : r.changes) {
    const char* doubt = change.is_enough                  ? ""
                        : change.bytes < r.ladder.missing ? " (not enough alone)"
                                                          : " (perhaps not enough alone)";
    absl::StrAppend(&text, "  ", change.text, doubt, "\n");
  }
  return text;
}

std::string OomJson(const OomReport& r) {
  const auto step = [&](size_t i) {
    const Ladder::Step& s = r.ladder.steps[i];
    return absl::StrCat("{\"rung\":", Quoted(kLadderRungNames[i]),
                        ",\"tried\":", s.tried ? "true" : "false", ",\"gained_bytes\":", s.gained,
                        "}");
  };
  std::string rungs;
  for (size_t i = 0; i < kLadderRungs; ++i) absl::StrAppend(&rungs, i > 0 ? "," : "", step(i));
  const auto amounts = [](const OomReport::Holder& h) {
    return absl::StrCat("\"bytes\":", h.bytes, ",\"blocks\":", h.blocks, "}");
  };
  return absl::StrCat(
      absl::StrCat(
          "{\"schema\":\"weir-oom/1\",\"device\":", r.device, ",\"number\":", r.number,
          ",\"request\":{\"bytes\":", r.bytes, ",\"alignment\":", r.alignment,
          ",\"stream\":", Quoted(r.stream), ",\"pool\":",
          r.pool == 0 ? std::string("null") : Quoted(absl::StrCat("0x", absl::Hex(r.pool))),
          "},\"missing_bytes\":", r.ladder.missing),
      absl::StrCat(",\"limits\":{\"device_bytes\":", r.total, ",\"memory_limit_bytes\":",
                   OrNull(r.memory_limit), ",\"pool_limit_bytes\":", OrNull(r.pool_limit), "}"),
      absl::StrCat(
          ",\"memory\":{\"reserved_bytes\":", r.reserved, ",\"active_bytes\":", r.active,
          ",\"idle_bytes\":", r.idle, ",\"driver_free_bytes\":",
          r.ladder.driver_known ? absl::StrCat(r.ladder.driver_free) : "null",
          ",\"outside_bytes\":", r.ladder.driver_known ? absl::StrCat(r.outside()) : "null", "}"),
      ",\"rungs\":[", rungs, "],\"unusable\":",
      Array(kAllReasons,
            [&](OomReport::Reason reason) {
              return absl::StrCat("{\"reason\":", Quoted(NameOf(reason)),
                                  ",\"bytes\":", r.of(reason).bytes,
                                  ",\"largest_bytes\":", r.of(reason).largest, "}");
            }),
      ",\"waiting\":",
      Array(r.waiting,
            [](const OomReport::Waiting& w) {
              return absl::StrCat("{\"stream\":", Quoted(w.stream), ",\"bytes\":", w.bytes, "}");
            }),
      ",\"holders\":{\"by_tag\":",
      Array(r.by_tag,
            [&](const OomReport::Holder& h) {
              return absl::StrCat("{\"tag\":", Quoted(h.name), ",", amounts(h));
            }),
      ",\"by_size\":",
      Array(r.by_size,
            [&](const OomReport::Holder& h) {
              return absl::StrCat("{\"bytes_each\":", h.bytes_each, ",", amounts(h));
            }),
      ",\"by_stack\":",
      Array(r.by_stack,
            [&](const OomReport::Holder& h) {
              return absl::StrCat("{\"frames\":", Array(h.stack.Describe(), Quoted), ",",
                                  amounts(h));
            }),
      "},\"changes\":",
      Array(r.changes,
            [](const OomReport::Change& change) {
              return absl::StrCat("{\"text\":", Quoted(change.text), ",\"bytes\":", change.bytes,
                                  ",\"enough\":", change.is_enough ? "true" : "false", "}");
            }),
      "}");
}

}  // namespace weir
