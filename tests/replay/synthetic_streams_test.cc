// Tests of the streams that replace a trace's own.
#include "tools/replay/synthetic_streams.h"

#include <vector>

#include "tests/support/catch.h"

namespace weir::replay {
namespace {

using trace::EventKind;

trace::Trace OneStream(const std::vector<uint64_t>& sizes) {
  trace::Trace trace;
  trace.streams = {{0, 0}, {7, 0}};
  for (const uint64_t bytes : sizes) {
    trace.events.push_back({0, bytes, static_cast<uint32_t>(trace.blocks++), 0, 0});
  }
  return trace;
}

TEST_CASE("a request's size class, modulo four, is its stream, of its uses and its free too",
          "[replay]") {
  trace::Trace trace = OneStream({0, 1, 2, 3, 4, 8, 15, 16, uint64_t{1} << 32});
  trace.events.push_back({0, 0, 5, 1, 0, EventKind::kUse});
  trace.events.push_back({0, 0, 5, 1, 0, EventKind::kFree});
  UseSyntheticStreams(SyntheticStreams::kSize, &trace);
  std::vector<int> streams;
  for (const trace::TraceEvent& event : trace.events) streams.push_back(event.stream);
  CHECK(streams == std::vector<int>{0, 0, 1, 1, 2, 3, 3, 0, 0, 3, 3});
  REQUIRE(trace.streams.size() == 4);
  for (const trace::TraceStream& stream : trace.streams) CHECK(stream.handle != 0);
}

TEST_CASE("turns change the stream after every 50th request", "[replay]") {
  trace::Trace trace = OneStream(std::vector<uint64_t>(450, 512));
  UseSyntheticStreams(SyntheticStreams::kTurns, &trace);
  for (size_t i = 0; i < trace.events.size(); ++i) CHECK(trace.events[i].stream == i / 50 % 4);
}

TEST_CASE("each device has four streams of its own", "[replay]") {
  trace::Trace trace = OneStream({1, 1});
  trace.streams.push_back({0, 3});
  trace.events[0].device = 3;
  trace.events[0].stream = 2;
  UseSyntheticStreams(SyntheticStreams::kSize, &trace);
  REQUIRE(trace.streams.size() == 8);
  for (const trace::TraceEvent& event : trace.events) {
    CHECK(trace.streams[event.stream].device == event.device);
  }
}

TEST_CASE("without a rule a trace keeps its streams", "[replay]") {
  trace::Trace trace = OneStream({1});
  UseSyntheticStreams(SyntheticStreams::kNone, &trace);
  CHECK(trace.streams.size() == 2);
}

}  // namespace
}  // namespace weir::replay
