// Tests of the verification itself: it must be able to find what it looks for.
#include "tools/replay/verifier.h"

#include <string>

#include "tests/support/catch.h"
#include "tools/replay/driver_calls.h"
#include "tools/simcuda/simcuda.h"

namespace weir::replay {
namespace {

constexpr uint64_t kBytes = uint64_t{8} << 20;

// One device, two streams, and memory to write to.
struct Bench {
  Bench() {
    sim::Reset();
    REQUIRE(driver.Load(/*simulated=*/true, 0, 1));
    REQUIRE(driver.CreateStream(0, &a));
    REQUIRE(driver.CreateStream(0, &b));
    void* entry = nullptr;
    CUdriverProcAddressQueryResult status;
    REQUIRE(simcuda_get_proc_address("cuMemAlloc", &entry, 3020, 0, &status) == CUDA_SUCCESS);
    CUdeviceptr address = 0;
    REQUIRE(reinterpret_cast<CUresult (*)(CUdeviceptr*, size_t)>(entry)(&address, kBytes) ==
            CUDA_SUCCESS);
    memory = address;
  }
  Verifier::Block Block(uint64_t number, uint64_t bytes = kBytes) const {
    return {0, number, memory, bytes};
  }

  DriverCalls driver;
  Verifier verifier{driver};
  CUstream a = nullptr, b = nullptr;
  uint64_t memory = 0;
};

TEST_CASE("a block that kept its contents is no difference, at any size", "[replay]") {
  Bench bench;
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{128}, uint64_t{129},
                               uint64_t{200}, uint64_t{65536}, uint64_t{1000001}, kBytes}) {
    REQUIRE(bench.verifier.Write(bench.Block(1, bytes), bench.a, 0));
    REQUIRE(bench.verifier.Check(bench.Block(1, bytes), bench.a, 1, "check"));
  }
  REQUIRE(bench.driver.Synchronize(0));
  CHECK(bench.verifier.differences() == 0);
  CHECK(sim::CheckerReports().empty());
}

TEST_CASE("memory given to two blocks at once is found by its contents", "[replay]") {
  Bench bench;
  REQUIRE(bench.verifier.Write(bench.Block(1), bench.a, 0));
  REQUIRE(bench.verifier.Write(bench.Block(2), bench.a, 1));
  REQUIRE(bench.verifier.Check(bench.Block(2), bench.a, 2, "check"));
  REQUIRE(bench.verifier.Check(bench.Block(1), bench.a, 3, "check"));
  REQUIRE(bench.driver.Synchronize(0));
  CHECK(bench.verifier.differences() == 1);
  CHECK(bench.verifier.first_event() == 3);
  CHECK(bench.verifier.first() ==
        "check of block 1 (8388608 bytes): the contents at offset 0 are not what was written");
}

TEST_CASE("the pattern of a pass before does not pass for this one's", "[replay]") {
  Bench bench;
  bench.verifier.BeginPass(1);
  REQUIRE(bench.verifier.Write(bench.Block(1, 5), bench.a, 0));
  bench.verifier.BeginPass(2);
  REQUIRE(bench.verifier.Check(bench.Block(1, 5), bench.a, 1, "check"));
  REQUIRE(bench.driver.Synchronize(0));
  CHECK(bench.verifier.differences() == 1);
}

TEST_CASE("reuse on another stream without order is reported, with order it is not", "[replay]") {
  for (const bool ordered : {false, true}) {
    Bench bench;
    REQUIRE(bench.verifier.Write(bench.Block(1), bench.a, 0));
    if (ordered) REQUIRE(bench.driver.OrderAfter(0, bench.a, bench.b));
    REQUIRE(bench.verifier.Write(bench.Block(2), bench.b, 7));
    REQUIRE(bench.driver.Synchronize(0));
    const auto reports = sim::CheckerReports();
    CHECK(reports.empty() == ordered);
    if (!ordered) {
      CHECK((reports.front().first + reports.front().second).find("of block 2 (event 7)") !=
            std::string::npos);
    }
  }
}

}  // namespace
}  // namespace weir::replay
