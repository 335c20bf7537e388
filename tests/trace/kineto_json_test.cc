// Tests of the reader of kineto profiles.
#include <string>

#include "tests/support/catch.h"
#include "tests/trace/trace_files.h"

namespace weir::trace {
namespace {

std::string Memory(double time_us, int64_t bytes, uint64_t address, int device = 0, int type = 1) {
  return R"({"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":1,"tid":2,"ts":)" +
         std::to_string(time_us) + R"(,"args":{"Total Allocated":5,"Device Id":)" +
         std::to_string(device) + R"(,"Device Type":)" + std::to_string(type) + R"(,"Addr":)" +
         std::to_string(address) + R"(,"Bytes":)" + std::to_string(bytes) + "}}";
}

std::string Profile(const std::string& events) {
  return R"({"schemaVersion":1,"deviceProperties":[{"id":0}],"traceEvents":[)" + events +
         R"(],"traceName":"x"})";
}

TEST_CASE("the memory events of a profile become a trace in the order of time", "[trace]") {
  const std::string kernel =
      R"({"ph":"X","name":"k","ts":3,"args":{"Bytes":5,"Addr":6,"nested":{"Addr":[1,{}]}}})";
  const Trace trace =
      ReadContent(Profile(Memory(20, -256, 4096) + "," + kernel + "," + Memory(10, 256, 4096) +
                          "," + Memory(15, 64, 4096, 1) + "," + Memory(12, 99, 1, 0, /*type=*/0)));
  CHECK(EventText(trace) == "a0:256@0 a1:64@1 f0@0");
  CHECK(trace.streams[1].device == 1);
  CHECK(trace.source == "kineto");
}

TEST_CASE("a profile that is only the array of events is read too", "[trace]") {
  CHECK(EventText(ReadContent("[" + Memory(1, 8, 1) + "," + Memory(2, -8, 1) + "]")) ==
        "a0:8@0 f0@0");
}

TEST_CASE("a block freed without an allocation was live before the profile", "[trace]") {
  const Trace trace =
      ReadContent(Profile(Memory(1, 8, 1) + "," + Memory(2, -500, 77) + "," + Memory(3, 9, 77)));
  CHECK(EventText(trace) == "a0:500@0 a1:8@0 f0@0 a2:9@0");
  CHECK(trace.notes.size() == 1);
}

TEST_CASE("what is wrong in a profile is named", "[trace]") {
  CHECK(ErrorOf(Profile(Memory(1, 8, 1) + "," + Memory(2, 8, 1))) ==
        "FILE: memory event 1: allocation of block 1, which is still live");
  CHECK(ErrorOf(Profile(Memory(1, 8, 1, -1))) == "FILE: memory event 0: the device is negative");
  CHECK(ErrorOf(Profile(Memory(1, INT64_MIN, 1))).find("is more than") != std::string::npos);
  CHECK(ErrorOf(Profile(R"({"name":"[memory]","args":{"Device Type":1,"Bytes":1}})"))
            .find("a [memory] event has no Addr or no Bytes") != std::string::npos);
  const std::string cut = Profile(Memory(1, 8, 1));
  CHECK(ErrorOf(cut.substr(0, cut.size() - 30)).find("FILE: byte") == 0);
  CHECK(ErrorOf("{\"traceEvents\": [}").find("unexpected '}'") != std::string::npos);
  CHECK(ErrorOf(Profile("")).find("no allocation events") != std::string::npos);
}

TEST_CASE("deeply nested JSON is read without a deep stack", "[trace]") {
  const std::string deep = std::string(2000000, '[') + std::string(2000000, ']');
  CHECK(EventText(ReadContent(Profile("{\"x\":" + deep + "}," + Memory(1, 8, 1)))) == "a0:8@0");
  CHECK(ErrorOf(std::string(3000000, '[')) != "");
}

}  // namespace
}  // namespace weir::trace
