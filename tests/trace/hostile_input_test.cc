// Files that attack: cut, bombed, endless, or changed at random. Each must give an error or a trace
// in bounded time and memory.
#include <sys/resource.h>
#include <zlib.h>

#include <cstdlib>
#include <random>
#include <string>

#include "tests/support/catch.h"
#include "tests/trace/trace_files.h"

namespace weir::trace {
namespace {

const std::string kCsv =
    "t_us,op,id,size,stream,device\n1,a,1,100,0,0\n2,a,2,300,5,0\n3,u,1,0,5,0\n4,f,1,0,0,0\n";
const std::string kRmm =
    "Thread,Time,Action,Pointer,Size,Stream\n1,10:00:00.000001,allocate,0x7f,256,0x0\n"
    "1,10:00:00.000003,free,0x7f,256,0x0\n";
const std::string kKineto =
    R"({"traceEvents":[{"name":"[memory]","ts":1,"args":{"Addr":7,"Bytes":8,"Device Id":0,)"
    R"("Device Type":1}}]})";

std::string Pickle() {
  return pickle::Snapshot({pickle::Event("alloc", 1, 5), pickle::Event("alloc", 2, 5, 7),
                           pickle::Event("free_requested", 1, 5), pickle::Event("alloc", 3, 5, 7)});
}

std::string Compact() {
  const TempFile file("", ".weirtrace");
  REQUIRE(WriteCompact(ReadContent(kCsv), file.path()).ok());
  return ReadWhole(file.path());
}

// One byte repeated, compressed as it is made.
std::string Bomb(const std::string& start, char byte, uint64_t bytes) {
  z_stream stream = {};
  REQUIRE(deflateInit2(&stream, 1, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed;
  const std::string chunk(1 << 20, byte);
  char out[1 << 16];
  const auto put = [&](const std::string& data, int flush) {
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
    stream.avail_in = static_cast<uInt>(data.size());
    do {
      stream.next_out = reinterpret_cast<Bytef*>(out);
      stream.avail_out = sizeof(out);
      deflate(&stream, flush);
      packed.append(out, sizeof(out) - stream.avail_out);
    } while (stream.avail_out == 0);
  };
  put(start, Z_NO_FLUSH);
  for (uint64_t done = 0; done < bytes; done += chunk.size()) put(chunk, Z_NO_FLUSH);
  put("", Z_FINISH);
  deflateEnd(&stream);
  return packed;
}

uint64_t PeakResidentBytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

TEST_CASE("a file cut anywhere is an error or a shorter trace", "[trace]") {
  for (const std::string& whole : {kCsv, kRmm, kKineto, Pickle(), Compact()}) {
    for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
      INFO("cut at " << bytes);
      const std::string error = ErrorOf(whole.substr(0, bytes));
      // Only the line formats can end early and be right.
      if (whole != kCsv && whole != kRmm) CHECK(error != "");
      CHECK(error.find('\n') == std::string::npos);
    }
    const std::string packed = Gzip(whole);
    for (size_t bytes = 0; bytes < packed.size(); ++bytes) {
      INFO("gzip cut at " << bytes);
      CHECK(ErrorOf(packed.substr(0, bytes)) != "");
    }
  }
}

TEST_CASE("files changed at random give an error or a trace, never a crash", "[trace]") {
  const char* given = std::getenv("WEIR_TEST_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  INFO("WEIR_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  uint64_t errors = 0, traces = 0;
  for (const std::string& whole : {kCsv, kRmm, kKineto, Pickle(), Compact(), Gzip(kCsv)}) {
    for (int round = 0; round < 1500; ++round) {
      std::string changed = whole;
      for (uint64_t edits = 1 + random() % 4; edits-- > 0 && !changed.empty();) {
        const size_t at = random() % changed.size();
        switch (random() % 4) {
          case 0:
            changed[at] = static_cast<char>(random());
            break;
          case 1:
            changed.erase(at, 1 + random() % 8);
            break;
          case 2:
            changed.insert(at, changed.substr(random() % changed.size(), random() % 16));
            break;
          default:
            changed[at] = static_cast<char>(changed[at] ^ (1 << random() % 8));
            break;
        }
      }
      const std::string error = ErrorOf(changed);
      error.empty() ? ++traces : ++errors;
      REQUIRE(error.find('\n') == std::string::npos);
    }
  }
  CHECK(errors > 1000);
  CHECK(traces > 100);
}

TEST_CASE("a line without end, bombed by gzip, costs no memory", "[trace]") {
  const uint64_t before = PeakResidentBytes();
  constexpr uint64_t kBytes = uint64_t{256} << 20;
  CHECK(ErrorOf(Bomb("t_us,op,id,size,stream,device\n", '1', kBytes)) ==
        "FILE: line 2: longer than 4096 bytes");
  CHECK(ErrorOf(Bomb("{\"traceEvents\":[\"", 'x', kBytes)).find("a token is longer than") !=
        std::string::npos);
  CHECK(ErrorOf(Bomb("{\"traceEvents\":", ' ', kBytes)).find("a token is longer than") !=
        std::string::npos);
  // A text whose length is true costs nothing either: texts that are not known are skipped.
  CHECK(ErrorOf(Bomb(std::string("\x80\x02X\xff\xff\xff\x0f", 7), 'x', kBytes)) != "");
  CHECK(PeakResidentBytes() - before < uint64_t{128} << 20);
}

TEST_CASE("a pickle of endless values stops at the documented limit", "[trace]") {
  CHECK(ErrorOf(Bomb("\x80\x02(", 'N', uint64_t{64} << 20)).find("the pickle holds more than") !=
        std::string::npos);
  CHECK(ErrorOf(Bomb("\x80\x02N", '\x94', uint64_t{64} << 20)).find("the pickle holds more than") !=
        std::string::npos);
}

TEST_CASE("one long history listed many times stops at the limit of events", "[trace]") {
  std::string history = "](" + pickle::Event("snapshot", 0, 0) + "q\x01";
  for (int i = 0; i < 300000; ++i) history += "h\x01";
  std::string devices = "](" + history + "eq\x02";
  for (int i = 0; i < 60; ++i) devices += "h\x02";
  CHECK(ErrorOf(pickle::File(pickle::Dict({{"device_traces", devices + "e"}})))
            .find("more than 16777216 events") != std::string::npos);
}

TEST_CASE("a file that is no trace, no file or empty is named so", "[trace]") {
  CHECK(ErrorOf("").find("the file is empty") != std::string::npos);
  CHECK(ErrorOf("hello\n").find("unknown format") != std::string::npos);
  CHECK(ErrorOf(std::string(100000, '\0')).find("unknown format") != std::string::npos);
  const absl::StatusOr<Trace> absent = ReadTrace("/nonexistent/trace.pickle");
  CHECK(std::string(absent.status().message()) ==
        "/nonexistent/trace.pickle: No such file or directory");
  CHECK(std::string(ReadTrace("/tmp").status().message()) == "/tmp: is a folder, not a trace");
}

}  // namespace
}  // namespace weir::trace
