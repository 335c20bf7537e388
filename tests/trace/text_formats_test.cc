// Tests of the line formats, of positions in errors, and of the summary.
#include <string>

#include "tests/support/catch.h"
#include "tests/trace/trace_files.h"

namespace weir::trace {
namespace {

const std::string kCsv = "t_us,op,id,size,stream,device\n";
const std::string kRmm = "Thread,Time,Action,Pointer,Size,Stream\n";

TEST_CASE("neutral CSV becomes events in the order of its lines", "[trace]") {
  const Trace trace =
      ReadContent(kCsv + "1.5,a,7,100,0,0\n2,a,9,200,16,0\n3,u,7,0,16,0\n3,f,7,100,0,0\n");
  CHECK(EventText(trace) == "a0:100@0 a1:200@1 u0@1 f0@0");
  CHECK(trace.events[0].time_us == 1);
  CHECK(trace.streams[1].handle == 16);
  CHECK(trace.blocks == 2);
}

TEST_CASE("the summary gives counts and the peak of live bytes", "[trace]") {
  const TraceSummary summary = Summarize(
      ReadContent(kCsv + "1,a,1,100,0,0\n2,a,2,50,0,0\n3,f,1,0,0,0\n4,a,3,60,0,0\n5,a,4,7,0,1\n"));
  CHECK(summary.allocations == 4);
  CHECK(summary.frees == 1);
  CHECK(summary.live_at_end == 3);
  CHECK(summary.peak_requested_bytes == 150 + 7);
  CHECK(summary.devices == 2);
}

TEST_CASE("an id may be used again after its free, as another block", "[trace]") {
  CHECK(EventText(ReadContent(kCsv + "1,a,1,8,0,0\n2,f,1,8,0,0\n3,a,1,9,0,0\n")) ==
        "a0:8@0 f0@0 a1:9@0");
}

TEST_CASE("gzip is told by content, carriage returns and several members are accepted", "[trace]") {
  const std::string first = Gzip("t_us,op,id,size,stream,device\r\n1,a,1,8,0,0\r\n");
  CHECK(EventText(ReadContent(first + Gzip("2,f,1,8,0,0\r\n"))) == "a0:8@0 f0@0");
}

TEST_CASE("a wrong line of CSV is named with its number and what is wrong", "[trace]") {
  CHECK(ErrorOf(kCsv + "1,a,1,8,0,0\n2,f,2,8,0,0\n") ==
        "FILE: line 3: free of block 2, which is not live");
  CHECK(ErrorOf(kCsv + "1,a,1,8,0,0\n2,a,1,8,0,0\n") ==
        "FILE: line 3: allocation of block 1, which is still live");
  CHECK(ErrorOf(kCsv + "1,u,1,8,0,0\n") == "FILE: line 2: use of block 1, which is not live");
  CHECK(ErrorOf(kCsv + "1,a,1,-8,0,0\n") == "FILE: line 2: size is no positive number: -8");
  CHECK(ErrorOf(kCsv + "1,a,1,99999999999999999999,0,0\n") ==
        "FILE: line 2: size is no positive number: 99999999999999999999");
  CHECK(ErrorOf(kCsv + "1,a,1,1125899906842625,0,0\n") ==
        "FILE: line 2: a size of 1125899906842625 bytes is more than 1125899906842624");
  CHECK(ErrorOf(kCsv + "1,a,1,8,0,64\n") == "FILE: line 2: device 64 is not below 64");
  CHECK(ErrorOf(kCsv + "1,a,1,8,0\n") == "FILE: line 2: 5 fields instead of 6");
  CHECK(ErrorOf(kCsv + "1,x,1,8,0,0\n") ==
        "FILE: line 2: op is none of a (allocate), f (free), u (use): x");
  CHECK(ErrorOf(kCsv + "nan,a,1,8,0,0\n") == "FILE: line 2: t_us is no number: nan");
  CHECK(ErrorOf(kCsv + "1,a,1,8,0,0x\n") == "FILE: line 2: device is no number: 0x");
}

TEST_CASE("control characters of a file do not reach the terminal", "[trace]") {
  CHECK(ErrorOf(kCsv + "1,\x1b[2J,1,8,0,0\n") ==
        "FILE: line 2: op is none of a (allocate), f (free), u (use): ?[2J");
}

TEST_CASE("a trace without events is an error", "[trace]") {
  CHECK(ErrorOf(kCsv).find("no allocation events") != std::string::npos);
}

TEST_CASE("an RMM log becomes events, with its times, streams and failures noted", "[trace]") {
  const Trace trace = ReadContent(kRmm +
                                  "1,10:00:00.000001,allocate,0x7f0000000000,256,0x0\n"
                                  "1,10:00:00:000002,allocate,0x7f0000000100,512,0x2\n"
                                  "1,10:00:00.000003,allocate failure,0x0,99999999,0x0\n"
                                  "1,10:00:00.000004,allocate,(nil),0,0x0\n"
                                  "2,10:00:01.000000,free,0x7f0000000000,256,0x2\n");
  CHECK(EventText(trace) == "a0:256@0 a1:512@1 f0@1");
  CHECK(trace.events[2].time_us - trace.events[0].time_us == 999999);
  REQUIRE(trace.notes.size() == 1);
  CHECK(trace.notes[0] == "1 failed allocations are left out");
}

TEST_CASE("a wrong line of an RMM log is named with its number", "[trace]") {
  CHECK(ErrorOf(kRmm + "1,10:00,allocate,0x1,2,0x0\n") ==
        "FILE: line 2: Time is no time of day: 10:00");
  CHECK(ErrorOf(kRmm + "1,10:00:00.1,allocate,0xg,2,0x0\n") ==
        "FILE: line 2: Pointer is no number: 0xg");
  CHECK(ErrorOf(kRmm + "1,10:00:00.1,reallocate,0x1,2,0x0\n") ==
        "FILE: line 2: Action is none of allocate, free, allocate failure: reallocate");
  CHECK(ErrorOf(kRmm + "1,10:00:00.1,free,0x1,2,0x0\n") ==
        "FILE: line 2: free of block 1, which is not live");
}

}  // namespace
}  // namespace weir::trace
