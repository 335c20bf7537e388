// Tests of the simulated device that is late by so many events.
#include "tools/replay/lag.h"

#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tools/simcuda/simcuda.h"

namespace weir::replay {
namespace {

using Log = std::vector<std::string>;

// One device, two streams, and what has run on them.
struct Bench {
  explicit Bench(uint64_t events) : lag(driver, events) {
    sim::Reset();
    REQUIRE(driver.Load(/*simulated=*/true, 0, 1));
    REQUIRE(driver.CreateStream(0, &a));
    REQUIRE(driver.CreateStream(0, &b));
  }
  ~Bench() { sim::Reset(); }  // while the lag is there

  void Work(CUstream stream, const std::string& name) {
    REQUIRE(driver.Launch(0, stream, name, {},
                          [this, name](sim::KernelMemory&) { log.push_back(name); }));
  }
  void Gate(CUstream stream) { REQUIRE(lag.Gate(0, stream)); }
  void Events(int count) {
    for (int i = 0; i < count; ++i) lag.NextEvent();
    while (sim::Step()) {
    }
  }

  DriverCalls driver;
  Lag lag;
  CUstream a = nullptr, b = nullptr;
  Log log;
};

TEST_CASE("what comes after a gate runs when so many events have passed, not before", "[replay]") {
  Bench bench(3);
  bench.Events(5);
  bench.Work(bench.a, "before");
  bench.Gate(bench.a);
  bench.Work(bench.a, "after");
  bench.Work(bench.b, "other stream");
  bench.Events(2);
  CHECK(bench.log.size() == 2);  // in any order
  bench.Events(1);
  REQUIRE(bench.log.size() == 3);
  CHECK(bench.log[2] == "after");
}

TEST_CASE("each gate has its own time", "[replay]") {
  Bench bench(2);
  bench.Gate(bench.a);
  bench.Work(bench.a, "first");
  bench.Events(1);
  bench.Gate(bench.a);
  bench.Work(bench.a, "second");
  CHECK(bench.log.empty());
  bench.Events(1);
  CHECK(bench.log == Log{"first"});
  bench.Events(1);
  CHECK(bench.log == Log{"first", "second"});
}

TEST_CASE("a gate that is reached after its time holds nothing", "[replay]") {
  Bench bench(1);
  sim::HoldStream(0, bench.a);
  bench.Gate(bench.a);
  bench.Work(bench.a, "work");
  bench.Events(3);
  CHECK(bench.log.empty());
  sim::ReleaseStream(0, bench.a);
  bench.Events(0);
  CHECK(bench.log == Log{"work"});
}

TEST_CASE("a host that waits lets all time pass that it must", "[replay]") {
  Bench bench(1000);
  bench.Gate(bench.a);
  bench.Work(bench.a, "a");
  bench.Gate(bench.a);
  bench.Work(bench.a, "a again");
  REQUIRE(bench.driver.OrderAfter(0, bench.a, bench.b));
  bench.Work(bench.b, "b");
  REQUIRE(bench.driver.Synchronize(0));
  CHECK(bench.log == Log{"a", "a again", "b"});
  bench.Gate(bench.a);  // later gates close again
  bench.Work(bench.a, "later");
  bench.Events(999);
  CHECK(bench.log.size() == 3);
  bench.Events(1);
  CHECK(bench.log.size() == 4);
}

}  // namespace
}  // namespace weir::replay
