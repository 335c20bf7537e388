// Profiles of PyTorch's kineto (profile_memory=True): "[memory]" instant events with the address,
// the size (negative for a free) and the device. Parsed as it streams in; only these events are
// kept. A block that is freed without having been allocated was live before the profile began: its
// allocation is put first. Device memory only (Device Type 1).
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/trace/readers.h"
#include "tools/trace/trace_builder.h"

namespace weir::trace {
namespace {

constexpr uint64_t kMaxTokenBytes = uint64_t{16} << 20;
constexpr int64_t kCudaDevice = 1;  // c10::DeviceType::CUDA

struct MemoryEvent {
  double time_us = 0;
  int64_t bytes = 0;
  uint64_t address = 0;
  int64_t device = 0;
};

// Feeds the parser, and ends the text when one token is so long that the parser would hold too
// much.
struct Feed {
  Input* input;
  uint64_t token_start = 0;
  bool token_too_long = false;
};

// The least that nlohmann's parser asks of an input iterator. All copies read the same feed.
class FeedIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  FeedIterator() = default;
  explicit FeedIterator(Feed* feed) : feed_(feed) { ++*this; }

  reference operator*() const { return value_; }
  FeedIterator& operator++() {
    const int byte = feed_->input->ReadByte();
    if (feed_->input->position() - feed_->token_start > kMaxTokenBytes) {
      feed_->token_too_long = true;
    }
    at_end_ = byte < 0 || feed_->token_too_long;
    value_ = static_cast<char>(byte);
    return *this;
  }
  bool operator==(const FeedIterator& other) const { return at_end_ == other.at_end_; }
  bool operator!=(const FeedIterator& other) const { return !(*this == other); }

 private:
  Feed* feed_ = nullptr;
  char value_ = 0;
  bool at_end_ = true;
};

// Where the parser stands: traceEvents is an array in the root object, or the root itself.
class MemoryEventHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit MemoryEventHandler(Feed* feed) : feed_(feed) {}

  std::vector<MemoryEvent> events;
  std::string error;  // of the text, without position

  bool null() override { return Token(); }
  bool boolean(bool) override { return Token(); }
  bool number_integer(number_integer_t value) override { return Integer(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<uint64_t>(INT64_MAX)) {
      // Only an address can be that high.
      if (InArgs() && key_ == "Addr") SetAddress(value);
      return Token();
    }
    return Integer(static_cast<int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t&) override {
    if (InEvent() && key_ == "ts") event_.time_us = value;
    return Token();
  }
  bool string(string_t& value) override {
    if (InEvent() && key_ == "name") is_memory_ = value == "[memory]";
    return Token();
  }
  bool binary(binary_t&) override { return Token(); }

  bool start_object(std::size_t) override {
    if (in_events_ && depth_ == events_depth_) {
      event_ = MemoryEvent();
      is_memory_ = has_address_ = has_bytes_ = has_type_ = false;
      type_ = 0;
    }
    if (in_events_ && depth_ == events_depth_ + 1) in_args_ = key_ == "args";
    ++depth_;
    return Token();
  }
  bool end_object() override {
    --depth_;
    if (in_events_ && depth_ == events_depth_) return Token() && EndEvent();
    if (in_events_ && depth_ == events_depth_ + 1) in_args_ = false;
    return Token();
  }
  bool start_array(std::size_t) override {
    ++depth_;
    if (!in_events_ && (depth_ == 1 || (depth_ == 2 && key_ == "traceEvents"))) {
      in_events_ = true;
      events_depth_ = depth_;
    }
    return Token();
  }
  bool end_array() override {
    if (in_events_ && depth_ == events_depth_) in_events_ = false;
    --depth_;
    return Token();
  }
  bool key(string_t& value) override {
    key_ = value.substr(0, 32);
    return Token();
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& e) override {
    if (error.empty()) {
      // What the library says, without its own prefix and without anything but one line.
      error = e.what();
      if (const size_t at = error.find("] "); at != std::string::npos) error.erase(0, at + 2);
      for (char& c : error) {
        if (static_cast<unsigned char>(c) < ' ') c = ' ';
      }
      error = error.substr(0, 200);
    }
    return false;
  }

 private:
  bool Token() {
    feed_->token_start = feed_->input->position();
    return true;
  }
  bool InEvent() const { return in_events_ && depth_ == events_depth_ + 1; }
  bool InArgs() const { return in_events_ && in_args_ && depth_ == events_depth_ + 2; }
  void SetAddress(uint64_t address) {
    event_.address = address;
    has_address_ = true;
  }
  bool Integer(int64_t value) {
    if (InEvent() && key_ == "ts") event_.time_us = static_cast<double>(value);
    if (InArgs()) {
      if (key_ == "Addr") SetAddress(static_cast<uint64_t>(value));
      if (key_ == "Bytes") {
        event_.bytes = value;
        has_bytes_ = true;
      }
      if (key_ == "Device Id") event_.device = value;
      if (key_ == "Device Type") {
        type_ = value;
        has_type_ = true;
      }
    }
    return Token();
  }
  bool EndEvent() {
    if (!is_memory_ || !has_type_ || type_ != kCudaDevice) return true;
    if (!has_address_ || !has_bytes_) {
      error = "a [memory] event has no Addr or no Bytes";
      return false;
    }
    if (events.size() == kMaxEvents) {
      error = absl::StrCat("more than ", kMaxEvents, " events");
      return false;
    }
    events.push_back(event_);
    return true;
  }

  Feed* feed_;
  MemoryEvent event_;
  std::string key_;
  int64_t type_ = 0;
  int depth_ = 0;
  int events_depth_ = 0;
  bool in_events_ = false;
  bool in_args_ = false;
  bool is_memory_ = false;
  bool has_address_ = false;
  bool has_bytes_ = false;
  bool has_type_ = false;
};

}  // namespace

absl::StatusOr<Trace> ReadKinetoJson(Input& input) {
  Feed feed{&input};
  MemoryEventHandler handler(&feed);
  const bool parsed = nlohmann::json::sax_parse(FeedIterator(&feed), FeedIterator(), &handler);
  if (!input.status().ok()) return input.status();
  if (feed.token_too_long) {
    return input.ErrorHere(absl::StrCat("a token is longer than ", kMaxTokenBytes, " bytes"));
  }
  if (!parsed) return input.ErrorHere(handler.error);

  // Threads write their events in turn, so the file is not in the order of time.
  std::stable_sort(
      handler.events.begin(), handler.events.end(),
      [](const MemoryEvent& a, const MemoryEvent& b) { return a.time_us < b.time_us; });
  TraceBuilder builder;
  uint64_t live_before = 0;
  for (size_t i = 0; i < handler.events.size(); ++i) {
    const MemoryEvent& event = handler.events[i];
    if (event.device < 0) return input.ErrorAt("memory event", i, "the device is negative");
    const TraceBuilder::Key key{static_cast<uint64_t>(event.device), event.address};
    const auto time_us =
        std::fabs(event.time_us) < 9e18 ? static_cast<int64_t>(event.time_us) : int64_t{0};
    if (event.bytes == 0) continue;
    absl::Status status;
    if (event.bytes > 0) {
      status = builder.Alloc(key, static_cast<uint64_t>(event.bytes), key.device, 0, time_us);
    } else {
      if (!builder.IsLive(key)) {
        const uint64_t bytes = 0 - static_cast<uint64_t>(event.bytes);
        status = builder.AllocBeforeStart(key, bytes, key.device, 0);
        ++live_before;
      }
      if (status.ok()) status = builder.Free(key, 0, time_us);
    }
    if (!status.ok()) return input.ErrorAt("memory event", i, std::string(status.message()));
  }
  if (live_before > 0) {
    builder.AddNote(absl::StrCat(live_before,
                                 " blocks were live before the profile began; their allocations "
                                 "are put first"));
  }
  return builder.Finish("kineto");
}

}  // namespace weir::trace
