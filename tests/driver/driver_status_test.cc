#include "allocator/driver/driver_status.h"

#include <cuda.h>

#include "tests/support/catch.h"

namespace weir {
namespace {

DriverErrorClass ClassOf(CUresult result) { return DriverStatus(result, "cuX").error_class(); }

TEST_CASE("every driver error is sorted by what the allocator can do about it", "[driver_status]") {
  CHECK(ClassOf(CUDA_SUCCESS) == DriverErrorClass::kNone);
  CHECK(ClassOf(CUDA_ERROR_OUT_OF_MEMORY) == DriverErrorClass::kOutOfMemory);
  CHECK(ClassOf(CUDA_ERROR_NOT_READY) == DriverErrorClass::kNotReady);
  CHECK(ClassOf(CUDA_ERROR_DEINITIALIZED) == DriverErrorClass::kShuttingDown);
  for (CUresult misuse :
       {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_INVALID_CONTEXT,
        CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_ILLEGAL_STATE, CUDA_ERROR_NOT_FOUND}) {
    CHECK(ClassOf(misuse) == DriverErrorClass::kMisuse);
  }
  for (CUresult sticky :
       {CUDA_ERROR_ECC_UNCORRECTABLE, CUDA_ERROR_NVLINK_UNCORRECTABLE, CUDA_ERROR_ILLEGAL_ADDRESS,
        CUDA_ERROR_ASSERT, CUDA_ERROR_MISALIGNED_ADDRESS, CUDA_ERROR_INVALID_ADDRESS_SPACE,
        CUDA_ERROR_INVALID_PC, CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_CONTEXT_IS_DESTROYED,
        CUDA_ERROR_NOT_INITIALIZED}) {
    CHECK(ClassOf(sticky) == DriverErrorClass::kSticky);
  }
  for (CUresult absent : {CUDA_ERROR_NOT_PERMITTED, CUDA_ERROR_NOT_SUPPORTED,
                          CUDA_ERROR_STUB_LIBRARY, CUDA_ERROR_SYSTEM_NOT_READY}) {
    CHECK(ClassOf(absent) == DriverErrorClass::kNotSupported);
  }
  for (int code = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
       code <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD; ++code) {
    CHECK(ClassOf(static_cast<CUresult>(code)) == DriverErrorClass::kCaptureViolation);
  }
  CHECK(ClassOf(CUDA_ERROR_UNKNOWN) == DriverErrorClass::kOther);
}

TEST_CASE("only success is ok, and only code 2 is out of memory", "[driver_status]") {
  CHECK(DriverStatus().ok());
  for (int code = 1; code <= 1000; ++code) {
    const DriverStatus status(code, "cuX");
    CHECK_FALSE(status.ok());
    CHECK(status.error_class() != DriverErrorClass::kNone);
    CHECK(status.is_out_of_memory() == (code == CUDA_ERROR_OUT_OF_MEMORY));
  }
}

TEST_CASE("an error's text names the driver function, the code's name and its number",
          "[driver_status]") {
  CHECK(DriverStatus(CUDA_ERROR_OUT_OF_MEMORY, "cuMemCreate").ToString() ==
        "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (2)");
  CHECK(DriverStatus(CUDA_ERROR_ILLEGAL_ADDRESS, "cuMemMap").ToString() ==
        "cuMemMap: CUDA_ERROR_ILLEGAL_ADDRESS (700)");
  CHECK(DriverStatus().ToString() == "CUDA_SUCCESS (0)");
  const std::string unknown = DriverStatus(12345, "cuInit").ToString();
  CHECK(unknown.find("cuInit: ") == 0);
  CHECK(unknown.find("(12345)") != std::string::npos);
}

}  // namespace
}  // namespace weir
