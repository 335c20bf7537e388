// Tests of the compact form: round trips, and files that are none.
#include <zlib.h>

#include <filesystem>
#include <string>

#include "tests/support/catch.h"
#include "tests/trace/trace_files.h"

namespace weir::trace {
namespace {

const std::string kCsv =
    "t_us,op,id,size,stream,device\n"
    "1000,a,1,100,0,0\n900,a,2,1125899906842624,77,1\n1200,u,1,0,5,0\n1300,f,1,0,5,0\n"
    "-5,a,3,0,0,0\n1300,f,3,0,0,0\n";

std::string Written(const Trace& trace) {
  const TempFile file("", ".weirtrace");
  const absl::Status status = WriteCompact(trace, file.path());
  INFO(status.ToString());
  REQUIRE(status.ok());
  return ReadWhole(file.path());
}

// A file of the compact form around any content, so that the checksum does not hide the content.
std::string Around(const std::string& content, uint64_t declared) {
  std::string file = "WEIRTRC\n\x01";
  for (int i = 0; i < 8; ++i) file += static_cast<char>(declared >> (8 * i));
  const uLong checksum = crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size());
  for (int i = 0; i < 4; ++i) file += static_cast<char>(checksum >> (8 * i));
  uLongf bytes = compressBound(content.size());
  std::string packed(bytes, '\0');
  REQUIRE(compress(reinterpret_cast<Bytef*>(packed.data()), &bytes,
                   reinterpret_cast<const Bytef*>(content.data()), content.size()) == Z_OK);
  return file + packed.substr(0, bytes);
}

bool SameEvents(const Trace& a, const Trace& b) {
  if (a.events.size() != b.events.size() || a.streams.size() != b.streams.size()) return false;
  for (size_t i = 0; i < a.events.size(); ++i) {
    const TraceEvent &x = a.events[i], &y = b.events[i];
    if (x.time_us != y.time_us || x.bytes != y.bytes || x.block != y.block ||
        x.stream != y.stream || x.device != y.device || x.kind != y.kind) {
      return false;
    }
  }
  for (size_t i = 0; i < a.streams.size(); ++i) {
    if (a.streams[i].handle != b.streams[i].handle || a.streams[i].device != b.streams[i].device) {
      return false;
    }
  }
  return a.blocks == b.blocks && a.source == b.source && a.notes == b.notes;
}

TEST_CASE("the compact form gives back every event, stream, note and time", "[trace]") {
  Trace trace = ReadContent(kCsv);
  trace.notes = {"a note"};
  const std::string file = Written(trace);
  CHECK(SameEvents(trace, ReadContent(file)));
  CHECK(SameEvents(trace, ReadContent(Gzip(file))));
}

TEST_CASE("control characters in a note are made visible", "[trace]") {
  Trace trace = ReadContent(kCsv);
  trace.notes = {"a\x1b[2J\nb"};
  CHECK(ReadContent(Written(trace)).notes[0] == "a?[2J?b");
}

TEST_CASE("every trace of the repository reads, and is the same written again", "[trace]") {
  int traces = 0;
  for (const auto& entry : std::filesystem::directory_iterator(WEIR_BENCH_TRACES)) {
    if (entry.path().extension() != ".weirtrace") continue;
    ++traces;
    const absl::StatusOr<Trace> trace = ReadTrace(entry.path());
    INFO(entry.path() << " " << trace.status().ToString());
    REQUIRE(trace.ok());
    CHECK(SameEvents(*trace, ReadContent(Written(*trace))));
  }
  CHECK(traces == 28);
}

TEST_CASE("the recorded programs have the allocations and peaks their README tells", "[trace]") {
  const std::string folder = WEIR_BENCH_TRACES "/";
  const absl::StatusOr<Trace> gpt2 = ReadTrace(folder + "gpt2_train.weirtrace");
  REQUIRE(gpt2.ok());
  CHECK(gpt2->name == "gpt2_train");
  CHECK(Summarize(*gpt2).allocations == 48238);
  CHECK(Summarize(*gpt2).peak_requested_bytes >> 20 == 24204);
  const absl::StatusOr<Trace> fsdp = ReadTrace(folder + "fsdp_streams.weirtrace");
  REQUIRE(fsdp.ok());
  CHECK(Summarize(*fsdp).uses == 576);
  CHECK(Summarize(*fsdp).peak_requested_bytes >> 20 == 9760);
}

TEST_CASE("a damaged or cut compact file is an error", "[trace]") {
  const std::string file = Written(ReadContent(kCsv));
  for (size_t bytes = 8; bytes < file.size(); ++bytes) {
    INFO("cut at " << bytes);
    CHECK(ErrorOf(file.substr(0, bytes)) != "");
  }
  std::string wrong_sum = file;
  wrong_sum[17] = static_cast<char>(wrong_sum[17] ^ 1);
  CHECK(ErrorOf(wrong_sum).find("the checksum is wrong") != std::string::npos);
  std::string later = file;
  later[8] = 2;
  CHECK(ErrorOf(later).find("version 2 of the compact form; this program reads version 1") !=
        std::string::npos);
  std::string damaged = file;
  damaged[22] = static_cast<char>(damaged[22] ^ 0x55);
  CHECK(ErrorOf(damaged).find("damaged") != std::string::npos);
}

TEST_CASE("compact content that is no trace is named by what is wrong", "[trace]") {
  // name "", source "", 0 notes, 1 stream (device 0, handle 0), then events.
  const std::string start("\0\0\0\1\0\0", 6);
  const auto error = [&](const std::string& events) {
    const std::string content = start + events;
    return ErrorOf(Around(content, content.size()));
  };
  using namespace std::string_literals;
  CHECK(error("\1\1\0\0\0"s).find("a block that was never allocated") != std::string::npos);
  CHECK(error("\3\0\1\1\0\0\0\0\0\1\0\0\0"s).find("a block that was freed before") !=
        std::string::npos);
  CHECK(error("\1\3\0\0\0"s).find("3 is more than 2") != std::string::npos);
  CHECK(error("\1\0\1\0\0"s).find("a stream that is not listed") != std::string::npos);
  CHECK(error("\xff\xff\xff\7\0"s).find("more events than bytes") != std::string::npos);
  CHECK(error("\1\0\0\5\0\0"s).find("bytes after the last event") != std::string::npos);
  CHECK(error("\1\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\2"s).find("longer than 64 bits") !=
        std::string::npos);
  const std::string content = start + "\1\0\0\5\0"s;
  CHECK(ErrorOf(Around(content, content.size())) == "");
  CHECK(ErrorOf(Around(content, content.size() - 1)).find("larger than its header says") !=
        std::string::npos);
  CHECK(ErrorOf(Around(content, content.size() + 1)).find("smaller than its header says") !=
        std::string::npos);
  CHECK(ErrorOf(Around(content, uint64_t{1} << 40)).find("are allowed") != std::string::npos);
}

TEST_CASE("writing to a place that does not exist is an error and leaves nothing", "[trace]") {
  const absl::Status status = WriteCompact(ReadContent(kCsv), "/nonexistent/x.weirtrace");
  CHECK(std::string(status.message()) == "/nonexistent/x.weirtrace: No such file or directory");
}

}  // namespace
}  // namespace weir::trace
