// What a failure tells: the report as data, text and JSON.
#include "allocator/pool/oom_report.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "tests/pool/heap_fixture.h"

namespace weir {
namespace {

using nlohmann::json;
using test::Device;
using test::HeapFixture;
using Reason = OomReport::Reason;

// Makes a request fail. Its report must be one that parses.
std::shared_ptr<const OomReport> Fail(HeapFixture& f, uint64_t bytes, Stream stream = nullptr,
                                      uint64_t alignment = 512) {
  HeapError error;
  REQUIRE(f.heap().Allocate(bytes, alignment, stream, &error) == 0);
  REQUIRE(error.code == WEIR_ERROR_OUT_OF_MEMORY);
  const auto report = f.heap().LastReport();
  REQUIRE(report != nullptr);
  INFO(OomText(*report));
  const json parsed = json::parse(OomJson(*report));
  REQUIRE(parsed["schema"] == "weir-oom/1");
  REQUIRE(parsed["request"]["bytes"] == bytes);
  REQUIRE(parsed["changes"].size() == report->changes.size());
  REQUIRE(error.text == OomSummary(*report));
  REQUIRE(error.text.find('\n') == std::string::npos);
  if (!report->changes.empty() && bytes <= report->total)
    REQUIRE(error.text.find(report->changes.front().text) != std::string::npos);
  return report;
}

bool Advises(const OomReport& report, const std::string& part) {
  return std::any_of(report.changes.begin(), report.changes.end(), [&](const auto& change) {
    return change.text.find(part) != std::string::npos;
  });
}

}  // namespace

TEST_CASE("there is no report before the first failure", "[report]") {
  HeapFixture f;
  REQUIRE(f.heap().LastReport() == nullptr);
}

TEST_CASE("a report says what was asked and what the device and Weir have", "[report]") {
  HeapFixture f(Device(128 * kMiB));
  const CUstream s = f.NewStream();
  f.Allocate(100 * kMiB, s);
  const auto r = Fail(f, 40 * kMiB, s, 4096);
  REQUIRE(r->alignment == 4096);
  REQUIRE(r->stream.find("stream 0x") == 0);
  REQUIRE(r->number == 1);
  REQUIRE(r->total == 128 * kMiB);
  REQUIRE(r->reserved == 100 * kMiB);
  REQUIRE(r->active == 100 * kMiB);
  REQUIRE(r->ladder.driver_free == 28 * kMiB);
  REQUIRE(r->ladder.missing == 12 * kMiB);
  REQUIRE(Fail(f, 41 * kMiB)->number == 2);
}

TEST_CASE("a limit that is in the way is named with what more would do", "[report]") {
  HeapOptions options;
  options.memory_limit = 64 * kMiB;
  HeapFixture f(Device(1024 * kMiB), options);
  f.Allocate(40 * kMiB);
  const auto r = Fail(f, 40 * kMiB);
  REQUIRE(r->changes.front().text == "memory_limit is 64.0 MiB: 16.0 MiB more would do");
  REQUIRE(r->changes.front().is_enough);
  f.heap().SetMemoryLimit(80 * kMiB);
  f.Allocate(40 * kMiB);  // the advice was right
}

TEST_CASE("what other processes hold is named", "[report]") {
  HeapFixture f(Device(256 * kMiB));
  f.Allocate(40 * kMiB);
  sim::SetOtherProcessBytes(0, 200 * kMiB);
  const auto r = Fail(f, 40 * kMiB);
  REQUIRE(r->outside() == 200 * kMiB);
  REQUIRE(Advises(*r, "other processes"));
  REQUIRE(r->changes.front().text.find("200.0 MiB") != std::string::npos);
}

TEST_CASE("a request larger than the device is told so", "[report]") {
  HeapFixture f(Device(64 * kMiB));
  const auto r = Fail(f, 65 * kMiB);
  REQUIRE(Advises(*r, "the device has only 64.0 MiB"));
  REQUIRE(r->ladder.missing == 2 * kMiB);
  Fail(f, UINT64_MAX);
}

TEST_CASE("what is idle but too little is told apart from what is unusable", "[report]") {
  HeapFixture f(Device(64 * kMiB));
  const CUstream s = f.NewStream();
  f.Allocate(31 * kMiB, s);
  const uint64_t idle = f.Allocate(20 * kMiB, s);
  f.FreeAsync(idle, s);
  const auto r = Fail(f, 40 * kMiB, s);
  REQUIRE(r->idle > 0);
  REQUIRE(OomSummary(*r).find(absl::StrCat(r->idle, " idle, ", r->reserved - r->active - r->idle,
                                           " free but unusable")) != std::string::npos);
}

TEST_CASE("free memory between blocks in use is counted with its largest piece", "[report]") {
  const bool may_merge = GENERATE(false, true);
  HeapOptions options;
  if (may_merge) options.mesh = Meshing::kPressure;
  HeapFixture f(Device(32 * kMiB), options);
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 32; ++i) blocks.push_back(f.Allocate(kMiB));
  for (size_t i = 0; i < 32; i += 2) f.FreeAsync(blocks[i]);
  const auto r = Fail(f, may_merge ? 20 * kMiB : 4 * kMiB);
  REQUIRE(Advises(*r, "mode:tight") == !may_merge);
  if (may_merge) return;
  REQUIRE(r->of(Reason::kPartlyUsed).bytes == 16 * kMiB);
  REQUIRE(r->of(Reason::kPartlyUsed).largest == kMiB);
  REQUIRE(Advises(*r, "mode:tight would free up to 16.0 MiB"));
  REQUIRE(OomText(*r).find("in use (perhaps not enough alone)") != std::string::npos);
}

TEST_CASE("merging is advised as a chance only, and where memory can be mapped", "[report]") {
  const bool vmm = GENERATE(true, false);
  HeapOptions options;
  options.vmm = vmm;
  HeapFixture f(Device(192 * kMiB), options);
  const CUstream s = f.NewStream();
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 38; ++i) blocks.push_back(f.Allocate(4608 * kKiB, s));
  for (size_t i = 0; i < 38; i += 2) f.FreeAsync(blocks[i], s);
  const auto r = Fail(f, 96 * kMiB, s);
  REQUIRE(Advises(*r, "mode:tight") == vmm);
  for (const OomReport::Change& change : r->changes) {
    if (change.text.find("mode:tight") == 0) REQUIRE(!change.is_enough);
  }
}

TEST_CASE("free objects beside objects in use are counted", "[report]") {
  HeapFixture f(Device(16 * kMiB));
  std::vector<uint64_t> objects;
  for (int i = 0; i < 256; ++i) objects.push_back(f.Allocate(30000, kAnyStream));
  for (size_t i = 0; i < 256; i += 2) f.Free(objects[i]);
  sim::RunUntilIdle();
  const auto r = Fail(f, 12 * kMiB, kAnyStream);
  REQUIRE(r->of(Reason::kSmallObjects).bytes > kMiB);
}

TEST_CASE("a small block that waits for a stream is no holder", "[report]") {
  HeapOptions options;
  options.ladder.wait = false;
  HeapFixture f(Device(64 * kMiB), options);
  const CUstream side = f.NewStream();
  f.Allocate(1000);
  const uint64_t freed = f.Allocate(1000);
  f.Write(side, freed, 1000);
  REQUIRE(f.heap().RecordUse(freed, side).ok());
  sim::HoldStream(0, side);
  f.FreeAsync(freed);
  const auto r = Fail(f, 64 * kMiB);
  REQUIRE(r->waiting.size() == 1);
  REQUIRE(r->by_size.size() == 1);
  REQUIRE(r->by_size[0].blocks == 1);
  sim::ReleaseStream(0, side);
}

TEST_CASE("memory that waits for a stream is named with the stream, if Weir may not wait",
          "[report]") {
  HeapOptions options;
  options.ladder.wait = false;
  HeapFixture f(Device(64 * kMiB), options);
  const CUstream side = f.NewStream();
  const uint64_t a = f.Allocate(20 * kMiB), b = f.Allocate(20 * kMiB, side);
  f.Write(side, a, 512);
  REQUIRE(f.heap().RecordUse(a, side).ok());
  sim::HoldStream(0, side);
  f.FreeAsync(a);
  f.FreeAsync(b, side);
  const auto r = Fail(f, 44 * kMiB);
  REQUIRE(r->waiting.size() == 1);
  REQUIRE(r->waiting[0].bytes == 20 * kMiB);
  REQUIRE(r->waiting[0].stream.find("stream 0x") == 0);
  REQUIRE(r->of(Reason::kNotComplete).bytes == 20 * kMiB);
  REQUIRE(r->of(Reason::kNotComplete).largest == 20 * kMiB);
  REQUIRE(Advises(*r, "wait for " + r->waiting[0].stream + ": 20.0 MiB deferred"));
  REQUIRE_FALSE(r->ladder[LadderRung::kWait].tried);
  sim::ReleaseStream(0, side);
}

TEST_CASE("idle memory of capture pools is named", "[report]") {
  HeapFixture f(Device(64 * kMiB));
  REQUIRE(f.heap().CreatePool(5).ok());
  REQUIRE(f.heap().BeginRoute(5, nullptr, nullptr).ok());
  f.FreeAsync(f.Allocate(30 * kMiB));
  REQUIRE(f.heap().EndRoute(5).ok());
  const auto r = Fail(f, 50 * kMiB);
  REQUIRE(r->of(Reason::kCapturePool).bytes == 30 * kMiB);
  REQUIRE(r->changes.front().text.find("release capture pools") == 0);
  REQUIRE_FALSE(r->changes.front().is_enough);  // what lies beside blocks in use is not all usable
  REQUIRE(f.heap().ReleasePool(5).ok());
  f.Allocate(50 * kMiB);  // the advice was right
}

TEST_CASE("the largest holders are named by size and by tag", "[report]") {
  HeapFixture f(Device(256 * kMiB));
  f.Allocate(100 * kMiB);
  REQUIRE(Tags::Push("weights"));
  f.Allocate(64 * kMiB);
  REQUIRE(Tags::Push("kv \"cache\""));
  for (int i = 0; i < 3; ++i) f.Allocate(20 * kMiB);
  for (int i = 0; i < 4; ++i) f.Allocate(100 * kKiB);
  REQUIRE(Tags::Pop());
  f.Allocate(2 * kMiB);
  REQUIRE(Tags::Pop());
  REQUIRE_FALSE(Tags::Pop());
  for (int i = 0; i < 10; ++i) f.Allocate(1000);
  const auto r = Fail(f, 100 * kMiB);
  REQUIRE(r->by_size[0].bytes_each == 100 * kMiB);
  REQUIRE(r->by_size[1].bytes_each == 64 * kMiB);
  REQUIRE(r->by_size[2].bytes_each == 20 * kMiB);
  REQUIRE(r->by_size[2].blocks == 3);
  const auto small = std::find_if(r->by_size.begin(), r->by_size.end(),
                                  [](const auto& h) { return h.bytes_each == 1024; });
  REQUIRE(small != r->by_size.end());
  REQUIRE(small->blocks == 10);
  REQUIRE(r->by_tag.size() == 3);
  REQUIRE(r->by_tag[0].name.empty());
  REQUIRE(r->by_tag[1].name == "weights");
  REQUIRE(r->by_tag[1].bytes == 66 * kMiB);
  REQUIRE(r->by_tag[2].name == "kv \"cache\"");
  REQUIRE(r->by_tag[2].bytes == 60 * kMiB + 400 * kKiB);
  REQUIRE(Advises(*r, "tag 'weights' holds 66.0 MiB"));
}

TEST_CASE("a tag that is not UTF-8 leaves JSON that can be read", "[report]") {
  HeapFixture f(Device(64 * kMiB));
  const std::pair<const char*, const char*> tags[] = {
      {"gr\xc3\xb6\xc3\x9f", "gr\xc3\xb6\xc3\x9f"},
      {"cut \xe2\x82", "cut \xef\xbf\xbd\xef\xbf\xbd"},  // half a euro sign
      {"\xe2\x82\xac \xf0\x9f\x98\x80", "\xe2\x82\xac \xf0\x9f\x98\x80"},
      {"\xc0\x80\xff", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
      {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
      {"a\"b\\c\n", "a\"b\\c\n"}};
  uint64_t bytes = 10 * kMiB;
  for (const auto& [tag, read] : tags) {
    Tags::Push(tag);
    f.Allocate(bytes -= kMiB);
    Tags::Pop();
  }
  const json holders = json::parse(OomJson(*Fail(f, 40 * kMiB)))["holders"]["by_tag"];
  for (size_t i = 0; i < std::size(tags); ++i) REQUIRE(holders[i]["tag"] == tags[i].second);
}

TEST_CASE("a block from a thread's cache has the tag of its new owner", "[report]") {
  HeapFixture f(Device(64 * kMiB));
  REQUIRE(Tags::Push("before"));
  f.FreeAsync(f.Allocate(200 * kKiB));
  REQUIRE(Tags::Pop());
  REQUIRE(Tags::Push("now"));
  f.Allocate(200 * kKiB);
  REQUIRE(Tags::Pop());
  const auto r = Fail(f, 64 * kMiB);
  REQUIRE(r->by_tag.size() == 1);
  REQUIRE(r->by_tag[0].name == "now");
}

TEST_CASE("call stacks are recorded from the size on that was asked for", "[report]") {
  const uint64_t from = GENERATE(1, 100 * 1024, 1024 * 1024);
  HeapOptions options;
  options.record_stacks = from;
  HeapFixture f(Device(64 * kMiB), options);
  std::vector<uint64_t> blocks;
  for (const uint64_t bytes : {uint64_t{500}, 99 * kKiB, 200 * kKiB, 5 * kMiB}) {
    for (int i = 0; i < 3; ++i) {
      blocks.push_back(f.Allocate(bytes));
      f.FreeAsync(f.Allocate(bytes));  // not held: not reported
    }
  }
  const auto r = Fail(f, 64 * kMiB);
  uint64_t held = 0, deepest = 0;
  for (const OomReport::Holder& holder : r->by_stack) {
    held += holder.blocks;
    deepest = std::max<uint64_t>(deepest, holder.stack.Describe().size());
  }
  REQUIRE(held == (from == 1 ? 12 : from == 100 * kKiB ? 6 : 3));
  REQUIRE(deepest > 2);
  for (uint64_t at : blocks) f.FreeAsync(at);
  REQUIRE(Fail(f, 65 * kMiB)->by_stack.empty());
  f.RequireValid();
}

TEST_CASE("each rung says whether it was tried and what it gained", "[report]") {
  HeapFixture f(Device(64 * kMiB));
  const CUstream side = f.NewStream();
  const uint64_t done = f.Allocate(10 * kMiB), pending = f.Allocate(20 * kMiB);
  f.Allocate(20 * kMiB);
  for (const uint64_t at : {done, pending}) {
    f.Write(side, at, 512);
    REQUIRE(f.heap().RecordUse(at, side).ok());
  }
  f.FreeAsync(done);
  f.FreeAsync(pending);
  f.FreeAsync(f.Allocate(200 * kKiB, side), side);
  const auto r = Fail(f, 60 * kMiB);
  REQUIRE(r->ladder[LadderRung::kComplete].gained + r->ladder[LadderRung::kWait].gained ==
          30 * kMiB);
  REQUIRE(r->ladder[LadderRung::kCaches].gained == 200 * kKiB);
  REQUIRE(r->ladder[LadderRung::kMap].tried);
  REQUIRE(r->ladder[LadderRung::kBorrow].tried);
  const json rungs = json::parse(OomJson(*r))["rungs"];
  REQUIRE(rungs.size() == kLadderRungs);
  REQUIRE(rungs[1]["rung"] == "caches");
  REQUIRE(rungs[1]["gained_bytes"] == 200 * kKiB);
}

TEST_CASE("the text names everything that JSON has", "[report]") {
  HeapOptions options;
  options.memory_limit = 100 * kMiB;
  options.record_stacks = 1;
  HeapFixture f(Device(256 * kMiB), options);
  f.Allocate(60 * kMiB);
  const auto report = Fail(f, 60 * kMiB);
  const std::string text = OomText(*report);
  REQUIRE(text.find("Free but unusable:\n  nothing\n") != std::string::npos);
  for (const char* part :
       {"Asked: 62914560 bytes (60.0 MiB), aligned to 512", "Missing: 20.0 MiB", "memory_limit",
        "What was tried:", "map: gained", "callbacks: not tried", "Largest holders by size:",
        "Largest holders by tag:", "Largest holders by call stack:", "What would have helped:"}) {
    INFO(text);
    REQUIRE(text.find(part) != std::string::npos);
  }
}

}  // namespace weir
