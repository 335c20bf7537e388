// A heap with capture pools, and graphs of the simulated device whose work really moves bytes.
#ifndef WEIR_TESTS_POOL_CAPTURE_FIXTURE_H_
#define WEIR_TESTS_POOL_CAPTURE_FIXTURE_H_

#include <cstdint>
#include <cstring>
#include <vector>

#include "allocator/block/pointer_index.h"
#include "allocator/driver/relaxed_capture_scope.h"
#include "tests/pool/heap_fixture.h"

namespace weir::test {

class CaptureFixture : public HeapFixture {
 public:
  using HeapFixture::HeapFixture;

  uint64_t NewPool(const weir_pool_options_t& options = {}) {
    REQUIRE(heap().CreatePool(++last_pool_, options).ok());
    return last_pool_;
  }
  void Begin(uint64_t pool) { REQUIRE(heap().BeginRoute(pool, nullptr, nullptr).ok()); }
  void End(uint64_t pool) { REQUIRE(heap().EndRoute(pool).ok()); }
  void Release(uint64_t pool) { REQUIRE(heap().ReleasePool(pool).ok()); }
  // The pool that a live block is of; 0: ordinary memory.
  static uint64_t PoolOf(uint64_t at) { return PointerIndex::Get().Find(at)->owner->key.pool; }

  void BeginCapture(CUstream stream) const { device().BeginCapture(stream); }
  CUgraphExec EndCapture(CUstream stream) const {
    CUgraph graph = nullptr;
    REQUIRE(device().Find<PFN_cuStreamEndCapture_v10000>("cuStreamEndCapture", 10000)(
                stream, &graph) == CUDA_SUCCESS);
    CUgraphExec exec = nullptr;
    REQUIRE(device().Find<PFN_cuGraphInstantiateWithFlags_v11040>(
                "cuGraphInstantiateWithFlags", 11040)(&exec, graph, 0) == CUDA_SUCCESS);
    REQUIRE(device().Find<PFN_cuGraphDestroy_v10000>("cuGraphDestroy", 10000)(graph) ==
            CUDA_SUCCESS);
    return exec;
  }
  void LaunchGraph(CUgraphExec exec, CUstream stream) const {
    REQUIRE(device().Find<PFN_cuGraphLaunch_v10000>("cuGraphLaunch", 10000)(exec, stream) ==
            CUDA_SUCCESS);
  }

  // As SimDevice::OrderAfter, also where the thread captures: a fork or a join then.
  void OrderAfter(CUstream earlier, CUstream later) const {
    const RelaxedCaptureScope relaxed(device().entries());
    device().OrderAfter(earlier, later);
  }

  // A block that the stream wrote, a stream forked from it has read, and the stream has freed.
  uint64_t FreeReadOnFork(uint64_t bytes, CUstream stream, CUstream fork) {
    const uint64_t at = Allocate(bytes, stream);
    Write(stream, at, bytes);
    OrderAfter(stream, fork);
    Read(fork, at, bytes);
    REQUIRE(heap().RecordUse(at, fork).ok());
    FreeAsync(at, stream);
    return at;
  }

  // Queued work: fills a block with a value.
  void Fill(CUstream stream, uint64_t at, uint64_t bytes, uint8_t value) {
    REQUIRE(sim::Launch(stream, "fill", {{at, bytes, true}}, [=](sim::KernelMemory& memory) {
              const std::vector<uint8_t> data(bytes, value);
              memory.Write(at, data.data(), bytes);
            }) == CUDA_SUCCESS);
  }
  // Queued work: every byte must be *value when it runs. What is wrong is counted.
  void Check(CUstream stream, uint64_t at, uint64_t bytes, const uint8_t* value) {
    REQUIRE(sim::Launch(stream, "check", {{at, bytes, false}}, [=, this](sim::KernelMemory& m) {
              if (!IsAll(m, at, bytes, *value)) ++mismatches_;
            }) == CUDA_SUCCESS);
  }
  void CheckNow(CUstream stream, uint64_t at, uint64_t bytes, uint8_t value) {
    const int before = mismatches_;
    Check(stream, at, bytes, &value);
    REQUIRE(device().entries().StreamSynchronize(stream) == CUDA_SUCCESS);
    REQUIRE(mismatches_ == before);
  }
  // Queued work: to[...] = from[...] + 1, where both hold one value all over.
  void Next(CUstream stream, uint64_t from, uint64_t from_bytes, uint64_t to, uint64_t to_bytes) {
    REQUIRE(sim::Launch(stream, "next", {{from, from_bytes, false}, {to, to_bytes, true}},
                        [=, this](sim::KernelMemory& memory) {
                          uint8_t value = 0;
                          memory.Read(from, &value, 1);
                          if (!IsAll(memory, from, from_bytes, value)) ++mismatches_;
                          const auto next = static_cast<uint8_t>(value + 1);
                          const std::vector<uint8_t> data(to_bytes, next);
                          memory.Write(to, data.data(), to_bytes);
                        }) == CUDA_SUCCESS);
  }
  int mismatches() const { return mismatches_; }

 private:
  static bool IsAll(sim::KernelMemory& memory, uint64_t at, uint64_t bytes, uint8_t value) {
    std::vector<uint8_t> data(bytes);
    memory.Read(at, data.data(), bytes);
    return data[0] == value && std::memcmp(data.data(), data.data() + 1, bytes - 1) == 0;
  }

  uint64_t last_pool_ = 0;
  int mismatches_ = 0;
};

}  // namespace weir::test

#endif  // WEIR_TESTS_POOL_CAPTURE_FIXTURE_H_
