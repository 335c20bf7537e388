// Every driver call is made to fail at every position: the heap stays valid, the program goes on.
#include "tests/pool/fault_sweep.h"
#include "tests/pool/heap_fixture.h"
#include "tests/pool/preset.h"

namespace weir {
namespace {

using test::HeapFixture;

// Growth, remapping, cross-stream reuse, deferral, trim: every kind of slow path. Allocations may
// fail while a fault is armed; what was handed out stays usable. Returns the number of failures.
int RunScenario(HeapFixture& f) {
  int failures = 0;
  const CUstream side = f.NewStream();
  std::vector<std::pair<uint64_t, Stream>> live;
  const auto allocate = [&](uint64_t bytes, Stream stream) {
    HeapError error;
    const uint64_t at = f.heap().Allocate(bytes, 512, stream, &error);
    if (at == 0) {
      REQUIRE_FALSE(error.text.empty());
      ++failures;
      return;
    }
    f.Write(stream == kAnyStream ? nullptr : stream, at, bytes);
    live.emplace_back(at, stream);
  };
  const auto free_every_second = [&] {
    std::vector<std::pair<uint64_t, Stream>> kept;
    for (size_t i = 0; i < live.size(); ++i) {
      const auto [at, stream] = live[i];
      if (i % 2 == 0) {
        kept.push_back(live[i]);
      } else if (stream == kAnyStream) {
        REQUIRE(f.heap().Free(at).ok());
      } else if (!f.heap().FreeAsync(at, stream).ok()) {
        kept.push_back(live[i]);
      }
    }
    live = kept;
  };
  for (int i = 0; i < 6; ++i) allocate(6 * kMiB, nullptr);
  for (int i = 0; i < 4; ++i) allocate(6 * kMiB, side);
  for (int i = 0; i < 3; ++i) allocate(2000, kAnyStream);
  free_every_second();
  f.RequireValid();
  allocate(20 * kMiB, nullptr);  // more than the device has left: pages must move
  allocate(11 * kMiB, side);
  allocate(5 * kMiB, kAnyStream);
  f.RequireValid();
  free_every_second();
  f.heap().EmptyCache().ok();
  f.RequireValid();
  for (const auto& [at, stream] : live) {
    if (!f.heap().FreeAsync(at, stream).ok()) REQUIRE(f.heap().Free(at).ok());
  }
  f.RequireValid();
  return failures;
}

sim::Config TightDevice(bool vmm) {
  sim::Config config;
  config.memory_bytes = 72 * kMiB;
  config.vmm = vmm;
  return config;
}

}  // namespace

TEST_CASE("whichever driver call fails, the heap stays valid and loses nothing", "[fault]") {
  // The program is too short for stitching (alias_fault_test.cc), whose tables take their time.
  const auto [vmm, conf] = GENERATE(table<bool, const char*>({{true, "mode:default"},
                                                              {true, "mode:tight,stitch:off"},
                                                              {true, "mode:serving"},
                                                              {false, "mode:default"}}));
  const HeapOptions options = test::OptionsFrom(conf);
  const CUresult code = GENERATE(CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN);
  INFO(conf);
  {
    HeapFixture f(TightDevice(vmm), options);
    const int failures = RunScenario(f);
    if (vmm) REQUIRE(failures == 0);  // classic segments cannot move, so some requests do not fit
  }
  const std::vector<std::string> allocator_entries{
      "cuMemCreate",      "cuMemRelease", "cuMemMap",           "cuMemUnmap",
      "cuMemSetAccess",   "cuMemAlloc",   "cuMemFree",          "cuEventCreate",
      "cuEventRecord",    "cuEventQuery", "cuEventSynchronize", "cuCtxRecordEvent",
      "cuCtxSynchronize", "cuMemGetInfo"};
  test::ForEachFault(allocator_entries, /*then=*/"", code, [&, vmm = vmm](test::FaultPoint& point) {
    HeapFixture f(TightDevice(vmm), options);
    point.Arm();
    RunScenario(f);
    point.Clear();
    // Afterwards everything can be given back, and the device is whole again.
    f.RequireAllIsGivenBack();
    HeapError error;
    const uint64_t at = f.heap().Allocate(60 * kMiB, 512, nullptr, &error);
    INFO(error.text);
    REQUIRE(at != 0);
    f.RequireNoRaces();
  });
}

TEST_CASE("when undoing fails too, memory is lost but never handed out broken", "[fault]") {
  const char* conf = GENERATE(values<const char*>({"mode:default", "mode:tight", "mode:serving"}));
  for (const char* entry : {"cuMemMap", "cuMemSetAccess", "cuMemUnmap"}) {
    for (uint64_t nth = 1; nth <= 12; ++nth) {
      INFO(conf << ", " << entry << " fails from call " << nth << " on");
      HeapFixture f(TightDevice(true), test::OptionsFrom(conf));
      test::FailCall(entry, nth, CUDA_ERROR_OUT_OF_MEMORY, /*for_ever=*/true);
      RunScenario(f);
      sim::ClearFaults();
      // The writes of the scenario fault if memory without access was handed out.
      f.RequireNoRaces();
      HeapError error;
      const uint64_t at = f.heap().Allocate(4 * kMiB, 512, nullptr, &error);
      INFO(error.text);
      if (at != 0) f.Write(nullptr, at, 4 * kMiB);
      f.RequireNoRaces();
    }
  }
}

TEST_CASE("a context event that fails unexpectedly loses no memory", "[fault]") {
  sim::Config config;
  config.memory_bytes = 512 * kMiB;
  HeapFixture f(config);
  sim::Fault fault;
  fault.entry = "cuCtxRecordEvent";
  fault.every_later_too = true;
  fault.result = CUDA_ERROR_UNKNOWN;
  sim::InjectFault(fault);
  f.Free(f.Allocate(400 * kMiB, kAnyStream));
  f.Free(f.Allocate(400 * kMiB, kAnyStream));
  REQUIRE(f.Stats().mechanisms_off == 1);
  f.RequireValid();
}

TEST_CASE("a marker that fails does not switch mapping off", "[fault]") {
  for (const char* entry : {"cuEventRecord", "cuEventSynchronize", "cuStreamIsCapturing"}) {
    INFO(entry);
    HeapFixture f(TightDevice(true));
    sim::Fault fault;
    fault.entry = entry;
    fault.result = CUDA_ERROR_UNKNOWN;
    sim::InjectFault(fault);
    RunScenario(f);
    REQUIRE(f.heap().driver().has_vmm());
  }
}

TEST_CASE("a sticky error stops the heap with a clear text, frees go on", "[fault]") {
  HeapFixture f;
  const uint64_t at = f.Allocate(4 * kMiB);
  sim::Fault fault;
  fault.entry = "*";
  fault.result = CUDA_ERROR_ILLEGAL_ADDRESS;
  fault.sticky = true;
  sim::InjectFault(fault);
  HeapError error;
  REQUIRE(f.heap().Allocate(400 * kMiB, 512, nullptr, &error) == 0);
  REQUIRE(error.code == WEIR_ERROR_DRIVER);
  REQUIRE(error.text.find("CUDA_ERROR_ILLEGAL_ADDRESS") != std::string::npos);
  REQUIRE(f.heap().FreeAsync(at, nullptr).ok());
}

TEST_CASE("spurious NOT_READY answers only delay reuse", "[fault]") {
  HeapFixture f(TightDevice(true));
  sim::SetSpuriousNotReady(0.5);
  REQUIRE(RunScenario(f) == 0);
  sim::SetSpuriousNotReady(0);
  f.RequireNoRaces();
}

}  // namespace weir
