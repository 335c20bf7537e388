#include "allocator/stream/timeline.h"

#include "tests/driver/sim_device.h"

namespace weir {
namespace {

using test::SimDevice;

class TimelineFixture {
 public:
  explicit TimelineFixture(const sim::Config& config = {})
      : sim_(config), device_(sim_.Create()), stream_(sim_.NewStream()) {
    CUcontext context = sim_.PrimaryContext(0);
    REQUIRE(sim_.entries().CtxPushCurrent(context) == CUDA_SUCCESS);
  }
  ~TimelineFixture() {
    CUcontext popped;
    sim_.entries().CtxPopCurrent(&popped);
  }

  void Work(CUstream stream) { REQUIRE(sim::Launch(stream, "work", {}) == CUDA_SUCCESS); }
  uint64_t Released(StreamTimeline* timeline) {
    uint64_t count = 0;
    timeline->TakeComplete([&count](uint64_t) { ++count; });
    return count;
  }
  static std::shared_ptr<DeferredFree> Waiting(uint32_t timelines = 1) {
    return std::make_shared<DeferredFree>(DeferredFree{0x1000, timelines});
  }

  const DeviceDriver& device() const { return *device_; }
  const SimDevice& sim() const { return sim_; }
  CUstream stream() const { return stream_; }
  MarkerCalls calls() { return {*device_, events_}; }

 private:
  SimDevice sim_;
  std::unique_ptr<DeviceDriver> device_;
  CUstream stream_;
  EventPool events_;
};

}  // namespace

TEST_CASE("an epoch is complete when the marker recorded after it is", "[timeline]") {
  TimelineFixture f;
  StreamTimeline timeline(StreamTimeline::Kind::kStream, f.stream());
  sim::HoldStream(0, f.stream());
  f.Work(f.stream());
  const Epoch freed_in = timeline.open();
  REQUIRE(timeline.Close(f.calls()).ok());
  REQUIRE(timeline.open() == freed_in + 1);
  REQUIRE(timeline.Poll(f.calls()).ok());
  REQUIRE_FALSE(timeline.IsComplete(freed_in));
  sim::ReleaseStream(0, f.stream());
  sim::RunUntilIdle();
  REQUIRE(timeline.Poll(f.calls()).ok());
  REQUIRE(timeline.IsComplete(freed_in));
  REQUIRE_FALSE(timeline.IsComplete(timeline.open()));
}

TEST_CASE("a free in the open epoch is not released by earlier markers", "[timeline]") {
  TimelineFixture f;
  StreamTimeline timeline(StreamTimeline::Kind::kStream, f.stream());
  REQUIRE(timeline.Close(f.calls()).ok());
  timeline.Defer(f.Waiting(), 512);
  sim::RunUntilIdle();
  REQUIRE(timeline.Poll(f.calls()).ok());
  REQUIRE(f.Released(&timeline) == 0);
  REQUIRE(timeline.Wait(f.calls(), timeline.last_deferred_epoch()).ok());
  REQUIRE(f.Released(&timeline) == 1);
  REQUIRE_FALSE(timeline.has_deferred());
}

TEST_CASE("a free that waits for two timelines needs both", "[timeline]") {
  TimelineFixture f;
  StreamTimeline a(StreamTimeline::Kind::kStream, f.stream());
  StreamTimeline b(StreamTimeline::Kind::kStream, f.sim().NewStream());
  auto free = f.Waiting(2);
  a.Defer(free, 512);
  b.Defer(free, 512);
  REQUIRE(a.Wait(f.calls(), a.open()).ok());
  REQUIRE(f.Released(&a) == 0);
  REQUIRE(b.Wait(f.calls(), b.open()).ok());
  REQUIRE(f.Released(&b) == 1);
}

TEST_CASE("waiting reaches no further than the epoch asked for", "[timeline]") {
  TimelineFixture f;
  StreamTimeline timeline(StreamTimeline::Kind::kStream, f.stream());
  const Epoch first = timeline.open();
  REQUIRE(timeline.Close(f.calls()).ok());
  const Epoch second = timeline.open();
  REQUIRE(timeline.Close(f.calls()).ok());
  REQUIRE(timeline.Wait(f.calls(), first).ok());
  REQUIRE(timeline.IsComplete(first));
  REQUIRE_FALSE(timeline.IsComplete(second));
}

TEST_CASE("events are recycled", "[timeline]") {
  TimelineFixture f;
  StreamTimeline timeline(StreamTimeline::Kind::kStream, f.stream());
  for (int i = 0; i < 10; ++i) {
    REQUIRE(timeline.Wait(f.calls(), timeline.open()).ok());
  }
  REQUIRE(sim::CallCount("cuEventCreate") == 1);
  REQUIRE(sim::CallCount("cuEventRecord") == 10);
}

TEST_CASE("if recording fails the next marker covers the epoch", "[timeline]") {
  TimelineFixture f;
  StreamTimeline timeline(StreamTimeline::Kind::kStream, f.stream());
  const Epoch freed_in = timeline.open();
  sim::Fault fault;
  fault.entry = "cuEventRecord";
  fault.result = CUDA_ERROR_UNKNOWN;
  sim::InjectFault(fault);
  REQUIRE_FALSE(timeline.Close(f.calls()).ok());
  REQUIRE_FALSE(timeline.IsComplete(freed_in));
  REQUIRE(timeline.Wait(f.calls(), freed_in).ok());
  REQUIRE(timeline.IsComplete(freed_in));
}

TEST_CASE("no marker is recorded on a stream under capture, and the capture survives",
          "[timeline][capture]") {
  TimelineFixture f;
  StreamTimeline timeline(StreamTimeline::Kind::kStream, f.stream());
  f.sim().BeginCapture(f.stream());
  REQUIRE(timeline.Close(f.calls()).ok());
  REQUIRE_FALSE(timeline.has_markers());
  const DriverStatus waited = timeline.Wait(f.calls(), timeline.open());
  REQUIRE(waited.error_class() == DriverErrorClass::kCaptureViolation);
  REQUIRE(f.sim().CaptureSurvives(f.stream()));
}

TEST_CASE("a context timeline waits for streams it has never seen", "[timeline]") {
  TimelineFixture f;
  StreamTimeline timeline(StreamTimeline::Kind::kContext, nullptr);
  sim::HoldStream(0, f.stream());
  f.Work(f.stream());
  const Epoch freed_in = timeline.open();
  REQUIRE(timeline.Close(f.calls()).ok());
  REQUIRE(timeline.Poll(f.calls()).ok());
  REQUIRE_FALSE(timeline.IsComplete(freed_in));
  sim::ReleaseStream(0, f.stream());
  REQUIRE(timeline.Wait(f.calls(), freed_in).ok());
  REQUIRE(timeline.IsComplete(freed_in));
}

TEST_CASE("without context events a context timeline is proved by synchronizing", "[timeline]") {
  sim::Config config;
  config.driver_version = 12040;
  TimelineFixture f(config);
  REQUIRE_FALSE(f.device().has_context_events());
  StreamTimeline timeline(StreamTimeline::Kind::kContext, nullptr);
  f.Work(f.stream());
  const Epoch freed_in = timeline.open();
  REQUIRE(timeline.Close(f.calls()).ok());
  REQUIRE(timeline.Poll(f.calls()).ok());
  REQUIRE_FALSE(timeline.IsComplete(freed_in));
  REQUIRE(timeline.Wait(f.calls(), freed_in).ok());
  REQUIRE(timeline.IsComplete(freed_in));
  REQUIRE(sim::CallCount("cuCtxSynchronize") == 1);
}

}  // namespace weir
