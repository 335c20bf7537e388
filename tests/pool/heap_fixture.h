// A DeviceHeap on a freshly started simulated device, with what a test does to its memory.
#ifndef WEIR_TESTS_POOL_HEAP_FIXTURE_H_
#define WEIR_TESTS_POOL_HEAP_FIXTURE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "allocator/pool/device_heap.h"
#include "tests/driver/sim_device.h"
#include "tests/support/catch.h"
#include "tools/simcuda/simcuda.h"

namespace weir::test {

inline sim::Config Device(uint64_t bytes, bool vmm = true) {
  sim::Config config;
  config.memory_bytes = bytes;
  config.vmm = vmm;
  return config;
}

// Makes the nth call of a driver entry from now on fail; with `for_ever` all later ones too.
inline void FailCall(const std::string& entry, uint64_t nth, CUresult result,
                     bool for_ever = false) {
  sim::Fault fault;
  fault.entry = entry;
  fault.nth = nth;
  fault.every_later_too = for_ever;
  fault.result = result;
  sim::InjectFault(fault);
}

class HeapFixture {
 public:
  explicit HeapFixture(const sim::Config& config = {}, const HeapOptions& options = {})
      : device_(config) {
    HeapError error;
    heap_ = DeviceHeap::Create(device_.Create(0, options.vmm), options, &error);
    INFO(error.text);
    REQUIRE(heap_ != nullptr);
    context_ = device_.PrimaryContext(0);
    REQUIRE(device_.entries().CtxPushCurrent(context_) == CUDA_SUCCESS);
  }

  DeviceHeap& heap() { return *heap_; }
  const SimDevice& device() const { return device_; }
  CUstream NewStream() const { return device_.NewStream(0); }

  // Makes the device's context current in a thread of the test. False if that fails: Catch's
  // assertions are for one thread at a time.
  [[nodiscard]] bool EnterDevice() const {
    return device_.entries().CtxPushCurrent(context_) == CUDA_SUCCESS;
  }

  uint64_t Allocate(uint64_t bytes, Stream stream = nullptr) {
    HeapError error;
    const uint64_t at = heap_->Allocate(bytes, kBlockAlignment, stream, &error);
    INFO(error.text);
    REQUIRE(at != 0);
    return at;
  }
  void Free(uint64_t at) { REQUIRE(heap_->Free(at).ok()); }
  void FreeAsync(uint64_t at, Stream stream = nullptr) {
    REQUIRE(heap_->FreeAsync(at, stream).ok());
  }

  // Queued work of the program.
  void Write(Stream stream, uint64_t at, uint64_t bytes, const std::string& label = "write") {
    REQUIRE(sim::Launch(stream, label, {{at, bytes, true}}) == CUDA_SUCCESS);
  }
  void Read(Stream stream, uint64_t at, uint64_t bytes, const std::string& label = "read") {
    REQUIRE(sim::Launch(stream, label, {{at, bytes, false}}) == CUDA_SUCCESS);
  }

  weir_stats_t Stats() {
    weir_stats_t stats;
    heap_->GetStats(&stats);
    return stats;
  }
  void RequireValid() {
    const std::string broken = heap_->Verify();
    INFO(broken);
    REQUIRE(broken.empty());
  }
  // Gives all back, which must leave nothing.
  void RequireAllIsGivenBack() {
    REQUIRE(heap_->EmptyCache().ok());
    RequireValid();
    REQUIRE(Stats().reserved_bytes == 0);
    REQUIRE(sim::UsedBytes(0) == 0);
  }
  // As RequireNoRaces, but a wait that a held stream makes endless is no fault of the heap.
  void RequireNoUnorderedAccess() {
    sim::RunUntilIdle();
    for (const sim::Report& report : sim::CheckerReports()) {
      INFO(report.text);
      REQUIRE(report.text.find("deadlock") != std::string::npos);
    }
  }
  void RequireNoRaces() {
    sim::RunUntilIdle();
    for (const sim::Report& report : sim::CheckerReports()) {
      INFO(report.text);
      REQUIRE(sim::CheckerReports().empty());
    }
  }

 private:
  SimDevice device_;
  CUcontext context_ = nullptr;
  std::unique_ptr<DeviceHeap> heap_;
};

}  // namespace weir::test

#endif  // WEIR_TESTS_POOL_HEAP_FIXTURE_H_
