#include "allocator/driver/loader.h"

#include "allocator/driver/driver.h"
#include "tests/driver/fake_driver.h"
#include "tests/support/catch.h"

namespace weir {
namespace {

using test::Fake;
using test::FakeDriver;
using test::FakeLibrary;

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("each entry is asked for at the version that fixes its ABI", "[loader]") {
  const DriverLibrary library = FakeLibrary();
  LoadedTable table;
  std::string error;
  REQUIRE(FillDriverTable(library, &table, &error));
  CHECK(table.missing.empty());
  CHECK(table.driver_version == 13000);
#define WEIR_DRIVER_ENTRY(Name, version, need)   \
  CHECK(Fake().asked.at("cu" #Name) == version); \
  CHECK(table.entries.Name != nullptr);
#include "allocator/driver/entry_points.inc"
  // The two whose newer versions take other arguments.
  CHECK(Fake().asked.at("cuCtxSynchronize") == 2000);
  CHECK(Fake().asked.at("cuCtxGetDevice") == 2000);
}

TEST_CASE("missing required entries are all named, with what to do", "[loader]") {
  const DriverLibrary library = FakeLibrary();
  Fake().scripted["cuMemAlloc"] = FakeDriver::Answer::kNotFound;
  Fake().scripted["cuEventRecord"] = FakeDriver::Answer::kNullButSuccess;
  LoadedTable table;
  std::string error;
  CHECK_FALSE(FillDriverTable(library, &table, &error));
  CHECK(Contains(error, "libfake.so"));
  CHECK(Contains(error, "cuMemAlloc: "));
  CHECK(Contains(error, "CUDA_ERROR_NOT_FOUND"));
  CHECK(Contains(error, "cuEventRecord: not found"));
  CHECK(Contains(error, "install a newer NVIDIA driver"));
  CHECK(Contains(error, "WEIR_CONF=device:sim"));
  CHECK_FALSE(Contains(error, "cuMemFree"));
}

TEST_CASE("missing optional entries are recorded with the reason and stop nothing", "[loader]") {
  const DriverLibrary library = FakeLibrary();
  Fake().scripted["cuMemMap"] = FakeDriver::Answer::kNullButSuccess;
  Fake().scripted["cuMemCreate"] = FakeDriver::Answer::kVersionNotSufficient;
  Fake().scripted["cuMemUnmap"] = FakeDriver::Answer::kError;
  LoadedTable table;
  std::string error;
  REQUIRE(FillDriverTable(library, &table, &error));
  CHECK(table.missing.size() == 3);
  CHECK(table.missing.at("cuMemMap") == "not found in libfake.so");
  CHECK(Contains(table.missing.at("cuMemCreate"), "newer than CUDA 10.2"));
  CHECK(Contains(table.missing.at("cuMemUnmap"), "CUDA_ERROR_UNKNOWN"));
  CHECK(table.entries.MemMap == nullptr);
  CHECK(table.entries.MemCreate == nullptr);
  CHECK(table.entries.MemRelease != nullptr);
}

TEST_CASE("an entry newer than the driver is recorded with both versions", "[loader]") {
  const DriverLibrary library = FakeLibrary();
  Fake().driver_version = 12020;
  LoadedTable table;
  std::string error;
  REQUIRE(FillDriverTable(library, &table, &error));
  CHECK(table.missing.size() == 1);
  CHECK(table.missing.at("cuCtxRecordEvent") == "came with CUDA 12.5, the driver is for CUDA 12.2");
}

TEST_CASE("a driver too old for required entries is refused", "[loader]") {
  const DriverLibrary library = FakeLibrary();
  Fake().driver_version = 9020;
  LoadedTable table;
  std::string error;
  CHECK_FALSE(FillDriverTable(library, &table, &error));
  CHECK(Contains(error, "cuThreadExchangeStreamCaptureMode: came with CUDA 10.1"));
}

TEST_CASE("an opened driver lists its devices", "[driver]") {
  std::string error;
  const auto driver = Driver::Open(FakeLibrary(), &error);
  REQUIRE(driver != nullptr);
  CHECK(driver->device_count() == 2);
  CHECK(driver->device(1) == 41);
  CHECK(driver->OrdinalOf(41) == 1);
  CHECK(driver->OrdinalOf(7) == -1);
  CHECK(driver->version() == 13000);
  CHECK_FALSE(driver->simulated());
  CHECK(driver->Find("cuMemHostAlloc", 2020) != nullptr);
  CHECK(driver->Find("cuFromTheFuture", 99000) == nullptr);
}

TEST_CASE("a driver that does not start says why and what to do", "[driver]") {
  struct Case {
    CUresult result;
    const char* advice;
  };
  for (const Case& c :
       {Case{CUDA_ERROR_NO_DEVICE, "nvidia-smi"}, Case{CUDA_ERROR_STUB_LIBRARY, "stub"},
        Case{CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "driver update"},
        Case{CUDA_ERROR_NOT_INITIALIZED, "fork"},
        Case{CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN (999)"}}) {
    const DriverLibrary library = FakeLibrary();
    Fake().init_result = c.result;
    std::string error;
    CHECK(Driver::Open(library, &error) == nullptr);
    CHECK(Contains(error, c.advice));
    CHECK(Contains(error, "libfake.so"));
    CHECK(Contains(error, "WEIR_CONF=device:sim"));
  }
}

TEST_CASE("a driver without devices is an error", "[driver]") {
  const DriverLibrary library = FakeLibrary();
  Fake().devices = 0;
  std::string error;
  CHECK(Driver::Open(library, &error) == nullptr);
  CHECK(Contains(error, "CUDA_ERROR_NO_DEVICE"));
}

TEST_CASE("the clock of a real driver is the monotonic clock", "[driver]") {
  std::string error;
  const auto driver = Driver::Open(FakeLibrary(), &error);
  REQUIRE(driver != nullptr);
  const uint64_t before = driver->NowNs();
  uint64_t after = before;
  for (int i = 0; i < 100'000'000 && after == before; ++i) after = driver->NowNs();
  CHECK(after > before);
}

TEST_CASE("a library that brings a virtual clock is a simulated device", "[driver]") {
  DriverLibrary library = FakeLibrary();
  library.virtual_time_ns = [] { return uint64_t{1234}; };
  std::string error;
  const auto driver = Driver::Open(library, &error);
  REQUIRE(driver != nullptr);
  CHECK(driver->simulated());
  CHECK(driver->NowNs() == 1234);
}

}  // namespace
}  // namespace weir
