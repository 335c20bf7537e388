#include "bench/cases.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/device.h"

namespace weir::bench {
namespace {

std::string current_case;
bool calls_are_counted = false;

}  // namespace

std::string CaseName(const std::string& group, const std::string& parameter) {
  return absl::StrCat(group, "/", Info().name, parameter.empty() ? "" : "/", parameter);
}

void AddCase(const std::string& name, CaseBody body) {
  benchmark::RegisterBenchmark(name.c_str(), std::move(body));
}

void AddThreadedCase(const std::string& name, CaseBody body) {
  benchmark::RegisterBenchmark(name.c_str(), std::move(body))->UseRealTime();
}

void AddSkippedCase(const std::string& name, const std::string& reason) {
  benchmark::RegisterBenchmark(name.c_str(), [reason](benchmark::State& state) {
    state.SkipWithError(("skipped: " + reason).c_str());
  });
}

void AddCaseWithin(const std::string& name, uint64_t blocks, uint64_t bytes, CaseBody body) {
  if (blocks > Info().max_blocks) {
    AddSkippedCase(name, absl::StrCat("takes too long with ", blocks, " blocks"));
  } else if (bytes > std::min(Info().max_bytes, DeviceBytes())) {
    AddSkippedCase(name, absl::StrCat("needs ", bytes >> 30, " GiB"));
  } else {
    AddCase(name, std::move(body));
  }
}

std::unique_ptr<Fixture>& CurrentFixture() {
  static std::unique_ptr<Fixture> fixture;
  return fixture;
}

void BeginCase(const std::string& name) {
  if (name == current_case) return;
  CurrentFixture().reset();
  Reset();
  current_case = name;
}

Stream StreamAt(size_t index) {
  static std::vector<Stream> streams;
  while (streams.size() <= index) streams.push_back(CreateStream());
  return streams[index];
}

void FreeAfterUse(void* pointer, size_t bytes, Stream stream, Stream other) {
  const AllocatorInfo& info = Info();
  if (info.free_on_other) return FreeOnOther(pointer, bytes, stream, other);
  if (info.record_use) RecordUse(pointer, other);
  Free(pointer, bytes, stream);
}

void CountDriverCalls(bool counted) { calls_are_counted = counted; }

DriverCallCount::DriverCallCount(benchmark::State& state)
    : state_(state), before_(calls_are_counted ? SimulatedCalls() : 0) {}

DriverCallCount::~DriverCallCount() {
  if (!calls_are_counted || state_.iterations() == 0) return;
  const double calls = static_cast<double>(SimulatedCalls() - before_);
  state_.counters["driver_calls_per_op"] = calls / static_cast<double>(state_.iterations());
}

}  // namespace weir::bench
