// A driver library made of a resolver and a handful of functions, for the loader's tests: what is
// missing, too new or null can be scripted. One per process, reset by each test.
#ifndef WEIR_TESTS_DRIVER_FAKE_DRIVER_H_
#define WEIR_TESTS_DRIVER_FAKE_DRIVER_H_

#include <cuda.h>

#include <map>
#include <string>
#include <vector>

#include "allocator/driver/loader.h"

namespace weir::test {

struct FakeDriver {
  enum class Answer { kNotFound, kNullButSuccess, kVersionNotSufficient, kError };
  std::map<std::string, Answer> scripted;  // by entry name
  int driver_version = 13000;
  CUresult init_result = CUDA_SUCCESS;
  int devices = 2;
  int first_device = 40;             // the CUdevice of ordinal 0
  std::map<std::string, int> asked;  // entry -> version it was asked at
};

inline FakeDriver& Fake() {
  static FakeDriver fake;
  return fake;
}

inline CUresult FakeVersion(int* version) {
  *version = Fake().driver_version;
  return CUDA_SUCCESS;
}
inline CUresult FakeInit(unsigned) { return Fake().init_result; }
inline CUresult FakeDeviceGetCount(int* count) {
  *count = Fake().devices;
  return CUDA_SUCCESS;
}
inline CUresult FakeDeviceGet(CUdevice* device, int ordinal) {
  *device = Fake().first_device + ordinal;
  return CUDA_SUCCESS;
}
inline CUresult FakeOther() { return CUDA_ERROR_UNKNOWN; }  // resolved, never called

inline CUresult FakeResolve(const char* symbol, void** pointer, int version, cuuint64_t,
                            CUdriverProcAddressQueryResult* status) {
  FakeDriver& fake = Fake();
  const std::string name = symbol;
  fake.asked[name] = version;
  *pointer = nullptr;
  const auto answer = [&](CUdriverProcAddressQueryResult value) {
    if (status != nullptr) *status = value;
  };
  answer(CU_GET_PROC_ADDRESS_SUCCESS);
  if (version > fake.driver_version) return CUDA_ERROR_INVALID_VALUE;
  if (const auto found = fake.scripted.find(name); found != fake.scripted.end()) {
    switch (found->second) {
      case FakeDriver::Answer::kNotFound:
        answer(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
        return CUDA_ERROR_NOT_FOUND;
      case FakeDriver::Answer::kNullButSuccess:
        answer(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
        return CUDA_SUCCESS;
      case FakeDriver::Answer::kVersionNotSufficient:
        answer(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
        return CUDA_SUCCESS;
      case FakeDriver::Answer::kError:
        return CUDA_ERROR_UNKNOWN;
    }
  }
  if (name == "cuDriverGetVersion") {
    *pointer = reinterpret_cast<void*>(&FakeVersion);
  } else if (name == "cuInit") {
    *pointer = reinterpret_cast<void*>(&FakeInit);
  } else if (name == "cuDeviceGetCount") {
    *pointer = reinterpret_cast<void*>(&FakeDeviceGetCount);
  } else if (name == "cuDeviceGet") {
    *pointer = reinterpret_cast<void*>(&FakeDeviceGet);
  } else {
    *pointer = reinterpret_cast<void*>(&FakeOther);
  }
  return CUDA_SUCCESS;
}

// Forgets what was scripted.
inline DriverLibrary FakeLibrary() {
  Fake() = FakeDriver();
  DriverLibrary library;
  library.name = "libfake.so";
  library.resolve = &FakeResolve;
  return library;
}

}  // namespace weir::test

#endif  // WEIR_TESTS_DRIVER_FAKE_DRIVER_H_
