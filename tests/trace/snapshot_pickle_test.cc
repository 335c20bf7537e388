// Tests of the reader of PyTorch memory snapshots and of its pickle machine.
#include <string>

#include "tests/support/catch.h"
#include "tests/trace/trace_files.h"

namespace weir::trace {
namespace {

using pickle::Dict;
using pickle::Event;
using pickle::List;
using pickle::Number;
using pickle::Snapshot;
using pickle::Text;

// pickle.dumps() of Python 3.11 of one snapshot, in the oldest protocol and in a framed one.
const std::string kProtocol0 =
    "(dp0\nVdevice_traces\np1\n(lp2\n(lp3\n(dp4\nVaction\np5\nValloc\np6\nsVaddr\np7\nL13"
    "9862019538944L\nsVsize\np8\nI512\nsVstream\np9\nI0\nsVtime_us\np10\nL170000000000000"
    "0L\nsVframes\np11\n(lp12\nsa(dp13\ng5\nVfree_requested\np14\nsg7\nL139862019538944L"
    "\nsg8\nI512\nsg9\nI0\nsVdevice_free\np15\nF1.5\nsVmore\np16\nI01\nsaas.";
const std::string kProtocol4(
    "\200\004\225\273\000\000\000\000\000\000\000}\224\214\015device_traces\224]\224]"
    "\224(}\224(\214\006action\224\214\005alloc\224\214\004addr\224\212\006\000\000\376)4"
    "\177\214\004size\224M\000\002\214\006stream\224K\000\214\007time_us\224\212\007\000@"
    "\036\030$\n\006\214\006frames\224]\224u}\224(h\005\214\016free_requested\224h"
    "\007\212\006\000\000\376)4\177h\010M\000\002h\011K\000\214\013device_free\224G?"
    "\370\000\000\000\000\000\000\214\004more\224\210ueas.",
    198);

std::vector<std::string> AllocAndFree(int64_t address) {
  return {Event("alloc", address, 512), Event("free_requested", address, 512),
          Event("free_completed", address, 512)};
}

TEST_CASE("a snapshot's history becomes events; segments and others are left out", "[trace]") {
  std::vector<std::string> events = {Event("segment_alloc", 4096, 2097152)};
  for (const std::string& event : AllocAndFree(4096)) events.push_back(event);
  events.push_back(Event("snapshot", 0, 0));
  const Trace trace = ReadContent(Snapshot(events));
  CHECK(EventText(trace) == "a0:512@0 f0@0");
  CHECK(trace.events[0].time_us == 1000);
  CHECK(trace.source == "pytorch-snapshot");
  CHECK(EventText(ReadContent(Gzip(Snapshot(events)))) == "a0:512@0 f0@0");
}

TEST_CASE("text pickles of protocol 0 and framed ones of protocol 4 are read", "[trace]") {
  CHECK(EventText(ReadContent(kProtocol0)) == "a0:512@0 f0@0");
  CHECK(EventText(ReadContent(kProtocol4)) == "a0:512@0 f0@0");
}

TEST_CASE("a free that is not completed at once was in use on the latest other stream", "[trace]") {
  const Trace trace = ReadContent(
      Snapshot({Event("alloc", 1, 10, 0), Event("alloc", 2, 20, 77), Event("alloc", 3, 30, 88),
                Event("alloc", 4, 40, 77), Event("free_requested", 1, 10, 0),
                Event("free_requested", 2, 20, 77), Event("free_completed", 2, 20, 77),
                Event("free_completed", 1, 10, 0)}));
  CHECK(EventText(trace) == "a0:10@0 a1:20@1 a2:30@2 a3:40@1 u0@1 f0@0 f1@1");
}

TEST_CASE("a deferred free on a device with one stream is a plain free, with a note", "[trace]") {
  const Trace trace =
      ReadContent(Snapshot({Event("alloc", 1, 10), Event("free_requested", 1, 10)}));
  CHECK(EventText(trace) == "a0:10@0 f0@0");
  CHECK(trace.notes.size() == 1);
}

TEST_CASE("blocks from before the history come first, whether freed in it or not", "[trace]") {
  const std::string segment = Dict({{"device", Number(0)},
                                    {"stream", Number(0)},
                                    {"blocks", List({Dict({{"address", Number(500)},
                                                           {"size", Number(1024)},
                                                           {"requested_size", Number(1000)},
                                                           {"state", Text("active_allocated")}}),
                                                     Dict({{"address", Number(600)},
                                                           {"size", Number(8)},
                                                           {"state", Text("inactive")}})})}});
  const Trace trace = ReadContent(Snapshot(
      {Event("free_completed", 9, 9), Event("alloc", 1, 10), Event("free_requested", 3, 30),
       Event("free_completed", 3, 30), Event("alloc", 3, 40)},
      {segment}));
  CHECK(EventText(trace) == "a0:30@0 a1:1000@0 a2:10@0 f0@0 a3:40@0");
  CHECK(trace.notes.size() == 2);
}

TEST_CASE("histories of several devices are merged by time", "[trace]") {
  const std::string devices =
      List({List({Event("alloc", 1, 10, 0, 100), Event("alloc", 2, 20, 0, 300)}),
            List({Event("alloc", 1, 30, 0, 200)})});
  const Trace trace = ReadContent(pickle::File(Dict({{"device_traces", devices}})));
  CHECK(EventText(trace) == "a0:10@0 a1:30@1 a2:20@0");
  CHECK(trace.streams[1].device == 1);
}

TEST_CASE("every opcode that can name code is refused by name", "[trace]") {
  const auto refused = [](const std::string& opcodes, const std::string& name) {
    const std::string error = ErrorOf("\x80\x02" + opcodes);
    INFO(name << ": " << error);
    CHECK(error.find("refused: opcode " + name + " can run code") != std::string::npos);
  };
  refused("cos\nsystem\n", "GLOBAL");
  refused(Text("os") + Text("system") + "\x93", "STACK_GLOBAL");
  refused("(ios\nsystem\n", "INST");
  refused("(o", "OBJ");
  refused("NNR", "REDUCE");
  refused("N}b", "BUILD");
  refused("N)\x81", "NEWOBJ");
  refused("N)}\x92", "NEWOBJ_EX");
  refused("\x82\x01", "EXT1");
  refused("\x83\x01", "EXT2");
  refused("\x84\x01", "EXT4");
  refused("P1\n", "PERSID");
  refused("NQ", "BINPERSID");
}

TEST_CASE("what is wrong in a snapshot is named with the event", "[trace]") {
  CHECK(ErrorOf(Snapshot({Event("alloc", 1, -5)})) ==
        "FILE: device 0 event 0: the size is negative: -5");
  CHECK(ErrorOf(Snapshot({Event("alloc", 1, 5), Event("alloc", 1, 5)})) ==
        "FILE: device 0 event 1: allocation of block 1, which is still live");
  CHECK(ErrorOf(Snapshot({Event("alloc", 1, 5), Event("free_requested", 1, 5),
                          Event("free_requested", 1, 5)})) ==
        "FILE: device 0 event 2: second free of block 1");
  CHECK(ErrorOf(Snapshot({Event("alloc", 1, 5), Event("free_completed", 1, 5)})) ==
        "FILE: device 0 event 1: free_completed of a block whose free was not asked");
  CHECK(ErrorOf(Snapshot({Number(5)})) == "FILE: device 0 event 0: is no event with an action");
  CHECK(ErrorOf(Snapshot({Dict({{"action", Text("alloc")}, {"addr", Text("x")}})})) ==
        "FILE: device 0 event 0: addr, size or stream is missing or no integer");
  CHECK(ErrorOf(pickle::File(List({}))).find("not a memory snapshot") != std::string::npos);
  CHECK(ErrorOf(pickle::File(Number(1))).find("not a memory snapshot") != std::string::npos);
}

TEST_CASE("a pickle whose stack does not fit its opcodes is an error", "[trace]") {
  for (const char* opcodes : {"0.",
                              "2.",
                              "a.",
                              "}s.",
                              "e.",
                              "u.",
                              "(e.",
                              "(u.",
                              "t.",
                              "1.",
                              "NNe.",
                              "\x94.",
                              "h\x01.",
                              "j\x01\x01\x01\x01.",
                              "g5\n.",
                              "gx\n.",
                              "g-1\n.",
                              "Np9999999\n.",
                              "Nr\xff\xff\xff\xff.",
                              "N(.",
                              "NN.",
                              ".",
                              "](Ks.",
                              "}(Ku.",
                              "(N0\x85.",
                              "\x87.",
                              "](N0aa.",
                              "\xff.",
                              "\x90.",
                              "\x91."}) {
    INFO(opcodes);
    CHECK(ErrorOf(std::string("\x80\x02") + opcodes) != "");
  }
}

TEST_CASE("a list that contains itself is no danger", "[trace]") {
  const std::string self =
      "]q\x01h\x01"
      "a";
  CHECK(ErrorOf(pickle::File(Dict({{"device_traces", self}, {"segments", self}}))) ==
        "FILE: device 0 event 0: is no event with an action");
}

}  // namespace
}  // namespace weir::trace
