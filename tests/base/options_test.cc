#include "allocator/base/options.h"

#include <cstdlib>

#include "tests/support/catch.h"

namespace weir {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

ProcessOptions Parsed(std::string_view text) {
  ProcessOptions options;
  std::string error;
  INFO(text);
  const bool ok = ParseOptions(text, &options, &error);
  INFO(error);
  REQUIRE(ok);
  return options;
}

std::string ErrorOf(std::string_view text) {
  ProcessOptions options;
  std::string error;
  INFO(text);
  CHECK_FALSE(ParseOptions(text, &options, &error));
  return error;
}

TEST_CASE("sizes are whole numbers of bytes, or numbers with a unit", "[options]") {
  struct Case {
    const char* text;
    uint64_t bytes;
  };
  for (const Case& c :
       {Case{"0", 0}, Case{"4096", 4096}, Case{"7B", 7}, Case{"64KiB", 65536},
        Case{"24GiB", 24 * kGiB}, Case{"512MB", 512'000'000}, Case{"1.5GiB", kGiB + kGiB / 2},
        Case{"0.5KB", 500}, Case{"2TiB", 2048 * kGiB}, Case{"1TB", 1'000'000'000'000},
        Case{"18446744073709551615", UINT64_MAX}, Case{"9007199254740993", 9007199254740993}}) {
    uint64_t bytes = 1;
    INFO(c.text);
    CHECK(ParseBytes(c.text, &bytes));
    CHECK(bytes == c.bytes);
  }
}

TEST_CASE("what is not a size is refused", "[options]") {
  for (const char* text :
       {"", "GiB", "-1", "+1", " 1", "1 GiB", "1.5", "1.5B", "0x10", "1e3GiB", "nan", "inf", "1gib",
        "12MiBx", "18446744073709551616", "17179869184GiB", "99999999999.5GiB", "1.2.3GiB"}) {
    uint64_t bytes = 0;
    INFO(text);
    CHECK_FALSE(ParseBytes(text, &bytes));
  }
}

TEST_CASE("options that are not named keep their defaults", "[options]") {
  const ProcessOptions options = Parsed("");
  CHECK(options.device == ProcessOptions::DeviceKind::kCuda);
  CHECK_FALSE(options.passthrough);
  CHECK(options.heap.vmm);
  CHECK(options.ForDevice(80 * kGiB).memory_limit == UINT64_MAX);
  CHECK(options.heap.soft_limit == 0.05);
  CHECK(options.heap.soft_limit_max == 0.15);
  CHECK(options.heap.soft_limit_slack == 8 * kMiB);
  CHECK(options.heap.guard_refill_us == 5);
  CHECK(options.heap.guard_burst_ms == 100);
  CHECK(options.heap.handle_divisor == 512);
  CHECK(options.heap.max_handle_bytes == 128 * kMiB);
  CHECK(options.heap.marker_bytes == 256 * kMiB);
  CHECK(options.heap.thread_cache_bytes == 8 * kMiB);
}

TEST_CASE("every key sets its option", "[options]") {
  const ProcessOptions options = Parsed(
      "device:sim,sim_memory:24GiB,sim_devices:2,sim_lag:7,mode:passthrough,vmm:off,memory_limit:"
      "10GiB,"
      "soft_limit:0.1,soft_limit_max:0.2,soft_limit_slack:16MiB,guard_refill_us:7,"
      "guard_burst_ms:50,handle_divisor:64,max_handle:64MiB,marker_bytes:1MiB,thread_cache:64KiB,"
      "borrow:small");
  CHECK(options.device == ProcessOptions::DeviceKind::kSimulated);
  CHECK(options.sim_memory == 24 * kGiB);
  CHECK(options.sim_devices == 2);
  CHECK(options.sim_lag == 7);
  CHECK(options.passthrough);
  CHECK_FALSE(options.heap.vmm);
  CHECK(options.ForDevice(80 * kGiB).memory_limit == 10 * kGiB);
  CHECK(options.heap.soft_limit == 0.1);
  CHECK(options.heap.soft_limit_max == 0.2);
  CHECK(options.heap.soft_limit_slack == 16 * kMiB);
  CHECK(options.heap.guard_refill_us == 7);
  CHECK(options.heap.guard_burst_ms == 50);
  CHECK(options.heap.handle_divisor == 64);
  CHECK(options.heap.max_handle_bytes == 64 * kMiB);
  CHECK(options.heap.marker_bytes == kMiB);
  CHECK(options.heap.thread_cache_bytes == 64 * kKiB);
  CHECK(options.heap.borrow == Borrowing::kSmall);
  CHECK(Parsed("device:cuda").device == ProcessOptions::DeviceKind::kCuda);
  CHECK_FALSE(Parsed("mode:default").passthrough);
}

TEST_CASE("the memory limit is a fraction if it has a decimal point and no unit", "[options]") {
  CHECK(Parsed("memory_limit:0.5").ForDevice(80 * kGiB).memory_limit == 40 * kGiB);
  CHECK(Parsed("memory_limit:1.0").ForDevice(80 * kGiB).memory_limit == 80 * kGiB);
  CHECK(Parsed("memory_limit:1.5GiB").ForDevice(80 * kGiB).memory_limit == kGiB + kGiB / 2);
  for (const char* text : {"memory_limit:0.0", "memory_limit:1.1", "memory_limit:-0.5"}) {
    CHECK(Contains(ErrorOf(text), "memory_limit:BYTES|0.0..1.0"));
  }
}

TEST_CASE("blanks and empty items are passed over", "[options]") {
  CHECK(Parsed(" device : sim , ,vmm:off,").device == ProcessOptions::DeviceKind::kSimulated);
}

TEST_CASE("an unknown key is an error that lists the keys", "[options]") {
  const std::string error = ErrorOf("device:sim,sim_memroy:1GiB");
  CHECK(Contains(error, "'sim_memroy'"));
  for (const char* key : {"device:cuda|sim  (cuda)", "sim_memory:BYTES  (24GiB)",
                          "mode:default|tight|serving|passthrough", "marker_bytes"}) {
    CHECK(Contains(error, key));
  }
}

TEST_CASE("a soft limit above its maximum is an error that names both", "[options]") {
  CHECK(Contains(ErrorOf("soft_limit:0.2"),
                 "'soft_limit_max' (0.15) must not be below 'soft_limit' (0.2): set both"));
}

TEST_CASE("a wrong value is an error that says what can be written", "[options]") {
  for (const char* text :
       {"device:gpu", "device", "device:", "sim_devices:0", "sim_devices:17", "sim_lag:-1",
        "sim_lag:much", "sim_devices:-1", "sim_memory:lots", "vmm:1", "mode:fast",
        "soft_limit:-0.1", "soft_limit:nan", "handle_divisor:1.5", "handle_divisor:0"}) {
    const std::string error = ErrorOf(text);
    INFO(error);
    CHECK(Contains(error, "cannot be"));
    CHECK(Contains(error, "; write "));
  }
  CHECK(Contains(ErrorOf("vmm:on,vmm:off"), "given twice"));
  CHECK(Contains(ErrorOf("soft_limit:0.3"), "must not be below"));
}

TEST_CASE("options that cannot be parsed change nothing", "[options]") {
  ProcessOptions options = Parsed("device:sim");
  std::string error;
  CHECK_FALSE(ParseOptions("device:cuda,vmm:off,nonsense:1", &options, &error));
  CHECK(options.device == ProcessOptions::DeviceKind::kSimulated);
  CHECK(options.heap.vmm);
}

TEST_CASE("the environment gives options, and its errors name the variable", "[options]") {
  struct Restore {
    ~Restore() {
      unsetenv("WEIR_CONF");
      unsetenv("WEIR_DISABLE");
    }
  } restore;
  ProcessOptions options;
  std::string error;
  unsetenv("WEIR_CONF");
  unsetenv("WEIR_DISABLE");
  CHECK(ReadOptionsFromEnvironment(&options, &error));
  CHECK_FALSE(options.passthrough);
  setenv("WEIR_CONF", "device:sim", 1);
  setenv("WEIR_DISABLE", "1", 1);
  CHECK(ReadOptionsFromEnvironment(&options, &error));
  CHECK(options.device == ProcessOptions::DeviceKind::kSimulated);
  CHECK(options.passthrough);
  setenv("WEIR_DISABLE", "yes", 1);
  CHECK_FALSE(ReadOptionsFromEnvironment(&options, &error));
  CHECK(Contains(error, "WEIR_DISABLE"));
  setenv("WEIR_CONF", "colour:red", 1);
  CHECK_FALSE(ReadOptionsFromEnvironment(&options, &error));
  CHECK(error.find("WEIR_CONF: unknown option 'colour'") == 0);
}

}  // namespace
TEST_CASE("memory made in advance is bytes, or a fraction of the device", "[options]") {
  CHECK(Parsed("preallocate:1GiB").ForDevice(80 * kGiB).preallocate == kGiB);
  CHECK(Parsed("preallocate:0.25").ForDevice(80 * kGiB).preallocate == 20 * kGiB);
  CHECK(Parsed("").ForDevice(80 * kGiB).preallocate == 0);
  for (const char* text : {"preallocate:0.0", "preallocate:1.1", "preallocate:all"}) {
    CHECK(Contains(ErrorOf(text), "preallocate:BYTES|0.0..1.0"));
  }
}

TEST_CASE("what is given back of itself has bounds, and nothing is by default", "[options]") {
  const HeapOptions initial = Parsed("").heap;
  CHECK(initial.release_threshold == UINT64_MAX);
  CHECK(initial.idle_decay == 0);
  CHECK(initial.gc_threshold == 0);
  CHECK(initial.record_stacks == 0);
  const HeapOptions set =
      Parsed("release_threshold:0,idle_decay:2.5,gc_threshold:0.8,record_stacks:1MiB").heap;
  CHECK(set.release_threshold == 0);
  CHECK(set.idle_decay == 2.5);
  CHECK(set.gc_threshold == 0.8);
  CHECK(set.record_stacks == kMiB);
  CHECK(Contains(ErrorOf("gc_threshold:1.5"), "gc_threshold:FRACTION"));
  CHECK(Contains(ErrorOf("idle_decay:-1"), "idle_decay:SECONDS"));
}

TEST_CASE("ladder names the rungs that are allowed", "[options]") {
  const auto allowed = [](const char* text) {
    const LadderOptions ladder = Parsed(text).heap.ladder;
    return std::string(ladder.borrow ? "b" : "") + (ladder.wait ? "w" : "") +
           (ladder.mesh ? "m" : "") + (ladder.callbacks ? "c" : "");
  };
  CHECK(allowed("") == "bwmc");
  CHECK(allowed("ladder:none").empty());
  CHECK(allowed("ladder:wait") == "w");
  CHECK(allowed("ladder:callbacks+borrow+mesh") == "bmc");
  for (const char* text :
       {"ladder:", "ladder:wait+", "ladder:+wait", "ladder:steal", "ladder:none+wait"}) {
    INFO(text);
    CHECK(Contains(ErrorOf(text), "ladder"));
    CHECK_FALSE(ErrorOf(text).empty());
  }
}

TEST_CASE("mode sets a preset, and other keys win over it in any order", "[options]") {
  const HeapOptions initial = Parsed("mode:default").heap;
  CHECK_FALSE(initial.stitch);
  CHECK(initial.mesh == Meshing::kNever);
  CHECK_FALSE(initial.share_boundaries);
  const HeapOptions tight = Parsed("mode:tight").heap;
  CHECK(tight.stitch);
  CHECK(tight.mesh == Meshing::kPressure);
  CHECK(tight.soft_limit == 0.015);
  CHECK(tight.max_handle_bytes == 2 * kMiB);
  CHECK(tight.guard_refill_us == 20);
  const HeapOptions serving = Parsed("mode:serving").heap;
  CHECK_FALSE(serving.stitch);
  CHECK(serving.share_boundaries);
  CHECK(serving.max_handle_bytes == 2 * kMiB);
  CHECK(serving.soft_limit == initial.soft_limit);
  for (const char* text : {"mode:tight,mesh:compact,soft_limit:0.01,stitch:off,max_handle:8MiB",
                           "max_handle:8MiB,stitch:off,soft_limit:0.01,mesh:compact,mode:tight",
                           "stitch:off,mesh:compact,mode:tight,soft_limit:0.01,max_handle:8MiB"}) {
    INFO(text);
    const HeapOptions mixed = Parsed(text).heap;
    CHECK_FALSE(mixed.stitch);
    CHECK(mixed.mesh == Meshing::kCompact);
    CHECK(mixed.soft_limit == 0.01);
    CHECK(mixed.max_handle_bytes == 8 * kMiB);
    CHECK(mixed.guard_refill_us == 20);
  }
  CHECK(Contains(ErrorOf("mode:tight,mesh:always"), "mesh:never|compact|pressure"));
  CHECK(Contains(ErrorOf("stitch:1"), "stitch:on|off"));
  CHECK(Contains(ErrorOf("alias_bound:65"), "alias_bound:FACTOR"));
}

}  // namespace weir
