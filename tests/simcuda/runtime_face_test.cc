// The runtime face: errors, devices and contexts, the driver below it, and kernels.
#include <string>
#include <thread>
#include <vector>

#include "tests/simcuda/runtime_fixture.h"

// What compilers generate calls of; no header declares all of them for plain C++.
extern "C" {
void** __cudaRegisterFatBinary(void* code);
void __cudaRegisterFatBinaryEnd(void** handle);
void __cudaUnregisterFatBinary(void** handle);
void __cudaRegisterFunction(void** handle, const char* stub, char* device_stub, const char* name,
                            int thread_limit, uint3* thread, uint3* block, dim3* block_size,
                            dim3* grid_size, int* warp_size);
void __cudaRegisterVar(void** handle, char* shadow, char* address, const char* name, int external,
                       size_t bytes, int constant, int global);
unsigned int __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                         cudaStream_t stream);
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream);
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* stub);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared_bytes, cudaStream_t stream);
}

namespace weir::sim {
namespace {

// A program's device code: one kernel and one variable.
class DeviceCode {
 public:
  DeviceCode() : handle_(__cudaRegisterFatBinary(nullptr)) {
    __cudaRegisterFunction(handle_, &kernel, &kernel, "test_kernel", -1, nullptr, nullptr, nullptr,
                           nullptr, nullptr);
    __cudaRegisterVar(handle_, variable, variable, "test_variable", 0, sizeof(variable), 0, 0);
    __cudaRegisterFatBinaryEnd(handle_);
  }
  ~DeviceCode() { __cudaUnregisterFatBinary(handle_); }
  DeviceCode(const DeviceCode&) = delete;
  DeviceCode& operator=(const DeviceCode&) = delete;

  static inline char kernel;        // its address is what counts
  static inline char variable[64];  // likewise

 private:
  void** const handle_;
};

TEST_CASE("a failed call is the thread's last error until it is taken", "[simcuda][runtime]") {
  const RuntimeMachine machine;
  void* memory = nullptr;
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(cudaMalloc(&memory, size_t{1} << 60) == cudaErrorMemoryAllocation);
  CHECK(cudaMalloc(&memory, 512) == cudaSuccess);  // a success changes nothing
  std::thread other([] { CHECK(cudaPeekAtLastError() == cudaSuccess); });
  other.join();
  CHECK(cudaPeekAtLastError() == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("work that is not ready is an error to be taken too", "[simcuda][runtime]") {
  const RuntimeMachine machine;
  const cudaStream_t stream = NewRuntimeStream();
  char* const memory = NewRuntimeMemory();
  HoldStream(0, stream);
  REQUIRE(cudaMemsetAsync(memory, 1, 64, stream) == cudaSuccess);
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  CHECK(cudaGetLastError() == cudaErrorNotReady);
  ReleaseStream(0, stream);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(cudaStreamQuery(stream) == cudaSuccess);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("an illegal address stays the last error until the device is reset",
          "[simcuda][runtime]") {
  const RuntimeMachine machine;
  char* const memory = NewRuntimeMemory(4096);
  REQUIRE(cudaMemsetAsync(memory + 4000, 1, 4096, nullptr) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
  CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
  void* more = nullptr;
  CHECK(cudaMalloc(&more, 512) == cudaErrorIllegalAddress);
  CHECK(cudaDeviceReset() == cudaSuccess);
  CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(cudaMalloc(&more, 512) == cudaSuccess);
}

TEST_CASE("injected faults of the driver are errors of the runtime", "[simcuda][runtime]") {
  const RuntimeMachine machine;
  REQUIRE(cudaFree(nullptr) == cudaSuccess);
  void* memory = nullptr;
  InjectFault({.entry = "cuMemAlloc", .result = CUDA_ERROR_OUT_OF_MEMORY});
  CHECK(cudaMalloc(&memory, 512) == cudaErrorMemoryAllocation);
  InjectFault({.entry = "cuMemAlloc", .result = CUDA_ERROR_SYSTEM_NOT_READY});
  CHECK(cudaMalloc(&memory, 512) == cudaErrorSystemNotReady);
  InjectFault({.entry = "cuMemAlloc", .result = static_cast<CUresult>(1000)});
  CHECK(cudaMalloc(&memory, 512) == cudaErrorUnknown);
  CHECK(cudaMalloc(&memory, 512) == cudaSuccess);
}

TEST_CASE("before a real driver the runtime refuses to start", "[simcuda][runtime]") {
  const RuntimeMachine machine;
  simcuda_refuse(1);
  int count = 7;
  CHECK(cudaGetDeviceCount(&count) == cudaErrorSystemDriverMismatch);
  CHECK(count == 0);
  CHECK(cudaFree(nullptr) == cudaErrorSystemDriverMismatch);
  simcuda_refuse(0);
  CHECK(cudaGetDeviceCount(&count) == cudaSuccess);
}

TEST_CASE("errors have the names of the runtime", "[simcuda][runtime]") {
  CHECK(cudaGetErrorName(cudaErrorMemoryAllocation) == std::string("cudaErrorMemoryAllocation"));
  CHECK(cudaGetErrorString(cudaErrorMemoryAllocation) == std::string("out of memory"));
  CHECK(cudaGetErrorName(cudaSuccess) == std::string("cudaSuccess"));
  CHECK(cudaGetErrorString(static_cast<cudaError_t>(1000)) ==
        std::string("unrecognized error code"));
}

TEST_CASE("each thread has its own current device, 0 at first", "[simcuda][runtime]") {
  const RuntimeMachine machine(TwoDevices());
  int count = 0;
  REQUIRE(cudaGetDeviceCount(&count) == cudaSuccess);
  CHECK(count == 2);
  int device = -1;
  REQUIRE(cudaGetDevice(&device) == cudaSuccess);
  CHECK(device == 0);
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  REQUIRE(cudaGetDevice(&device) == cudaSuccess);
  CHECK(device == 1);
  std::thread other([] {
    int others = -1;
    CHECK(cudaGetDevice(&others) == cudaSuccess);
    CHECK(others == 0);
  });
  other.join();
  NewRuntimeMemory(64 << 20);
  CHECK(UsedBytes(0) == 0);
  CHECK(UsedBytes(1) == 64 << 20);
  CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
  CHECK(cudaSetDevice(-1) == cudaErrorInvalidDevice);
  REQUIRE(cudaGetDevice(&device) == cudaSuccess);
  CHECK(device == 1);
  CHECK(cudaGetDevice(nullptr) == cudaErrorInvalidValue);
}

TEST_CASE("a context that the driver made current is the runtime's device", "[simcuda][runtime]") {
  const RuntimeMachine machine(TwoDevices());
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  const auto find = [](const char* name) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
    REQUIRE(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &status) ==
            cudaSuccess);
    REQUIRE(status == cudaDriverEntryPointSuccess);
    return function;
  };
  CUcontext context = nullptr;
  const auto retain =
      reinterpret_cast<decltype(&cuDevicePrimaryCtxRetain)>(find("cuDevicePrimaryCtxRetain"));
  const auto set = reinterpret_cast<decltype(&cuCtxSetCurrent)>(find("cuCtxSetCurrent"));
  REQUIRE(retain(&context, 1) == CUDA_SUCCESS);
  REQUIRE(set(context) == CUDA_SUCCESS);
  int device = -1;
  REQUIRE(cudaGetDevice(&device) == cudaSuccess);
  CHECK(device == 1);
}

TEST_CASE("a device is made ready with its flags", "[simcuda][runtime]") {
  const RuntimeMachine machine(TwoDevices());
  REQUIRE(cudaInitDevice(1, cudaDeviceScheduleSpin, cudaInitDeviceFlagsAreValid) == cudaSuccess);
  int device = -1;
  REQUIRE(cudaGetDevice(&device) == cudaSuccess);
  CHECK(device == 0);  // it is not chosen by that
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  unsigned int flags = 0;
  REQUIRE(cudaGetDeviceFlags(&flags) == cudaSuccess);
  CHECK(flags == cudaDeviceScheduleSpin);
  REQUIRE(cudaSetDeviceFlags(cudaDeviceScheduleYield) == cudaSuccess);
  REQUIRE(cudaGetDeviceFlags(&flags) == cudaSuccess);
  CHECK(flags == cudaDeviceScheduleYield);
  CHECK(cudaInitDevice(2, 0, 0) == cudaErrorInvalidDevice);
  CHECK(cudaInitDevice(0, 0, 2) == cudaErrorInvalidValue);
}

TEST_CASE("driver functions are found by name and version", "[simcuda][runtime]") {
  const RuntimeMachine machine;
  void* function = nullptr;
  cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSuccess;
  REQUIRE(cudaGetDriverEntryPointByVersion("cuMemCreate", &function, 12000, cudaEnableDefault,
                                           &status) == cudaSuccess);
  CHECK(status == cudaDriverEntryPointSuccess);
  CHECK(function != nullptr);
  REQUIRE(cudaGetDriverEntryPointByVersion("cuMemCreate", &function, 9000, cudaEnableDefault,
                                           &status) == cudaSuccess);
  CHECK(status == cudaDriverEntryPointVersionNotSufficent);
  CHECK(function == nullptr);
  REQUIRE(cudaGetDriverEntryPointByVersion("cuMulticastCreate", &function, 13000, cudaEnableDefault,
                                           &status) == cudaSuccess);
  CHECK(status == cudaDriverEntryPointSymbolNotFound);
  CHECK(cudaGetDriverEntryPointByVersion("cuNoSuchThing", &function, 13000, cudaEnableDefault,
                                         nullptr) == cudaErrorSymbolNotFound);
}

TEST_CASE("properties are the driver's attributes", "[simcuda][runtime]") {
  Config config = TwoDevices();
  config.memory_pools = false;
  const RuntimeMachine machine(config);
  cudaDeviceProp prop;
  REQUIRE(cudaGetDeviceProperties(&prop, 1) == cudaSuccess);
  CHECK(prop.name == std::string("Weir simulated GPU"));
  CHECK(prop.totalGlobalMem == config.memory_bytes);
  CHECK(prop.pciBusID == 2);
  CHECK(prop.memoryPoolsSupported == 0);
  CHECK(prop.warpSize == 32);
  CHECK(prop.maxThreadsPerMultiProcessor == 2048);
  int value = 0;
  REQUIRE(cudaDeviceGetAttribute(&value, cudaDevAttrMaxThreadsPerMultiProcessor, 0) == cudaSuccess);
  CHECK(value == 2048);
  CHECK(cudaGetDeviceProperties(&prop, 2) == cudaErrorInvalidDevice);
  CHECK(cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(250), 0) ==
        cudaErrorInvalidValue);
  char id[32];
  REQUIRE(cudaDeviceGetPCIBusId(id, sizeof(id), 0) == cudaSuccess);
  CHECK(id == std::string("0000:01:00.0"));
}

TEST_CASE("a launch is an operation of its stream", "[simcuda][runtime]") {
  const RuntimeMachine machine;
  const DeviceCode code;
  const cudaStream_t stream = NewRuntimeStream();
  HoldStream(0, stream);
  REQUIRE(cudaLaunchKernel(&DeviceCode::kernel, dim3(8), dim3(128), nullptr, 0, stream) ==
          cudaSuccess);
  cudaKernel_t kernel = nullptr;
  REQUIRE(__cudaGetKernel(&kernel, &DeviceCode::kernel) == cudaSuccess);
  REQUIRE(__cudaLaunchKernel(kernel, dim3(8), dim3(128), nullptr, 0, stream) == cudaSuccess);
  CHECK(QueuedOperations() == 2);
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  ReleaseStream(0, stream);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
}

TEST_CASE("a launch of unknown or impossible shape is refused", "[simcuda][runtime]") {
  const RuntimeMachine machine;
  char unknown = 0;
  const auto launch = [](const void* stub, dim3 grid, dim3 block) {
    return cudaLaunchKernel(stub, grid, block, nullptr, 0, nullptr);
  };
  {
    const DeviceCode code;
    CHECK(launch(&DeviceCode::kernel, dim3(1), dim3(1024)) == cudaSuccess);
    CHECK(launch(&unknown, dim3(1), dim3(1)) == cudaErrorInvalidDeviceFunction);
    CHECK(launch(&DeviceCode::kernel, dim3(1), dim3(1025)) == cudaErrorInvalidConfiguration);
    CHECK(launch(&DeviceCode::kernel, dim3(1), dim3(1 << 16, 1 << 16, 1)) ==
          cudaErrorInvalidConfiguration);
    CHECK(launch(&DeviceCode::kernel, dim3(0), dim3(1)) == cudaErrorInvalidConfiguration);
  }
  CHECK(launch(&DeviceCode::kernel, dim3(1), dim3(1)) == cudaErrorInvalidDeviceFunction);
}

TEST_CASE("a stub gets the configuration that was pushed last", "[simcuda][runtime]") {
  const RuntimeMachine machine;
  const cudaStream_t stream = NewRuntimeStream();
  CHECK(__cudaPushCallConfiguration(dim3(1), dim3(2), 3, nullptr) == 0);
  CHECK(__cudaPushCallConfiguration(dim3(4), dim3(5), 6, stream) == 0);
  dim3 grid;
  dim3 block;
  size_t shared = 0;
  cudaStream_t got = nullptr;
  REQUIRE(__cudaPopCallConfiguration(&grid, &block, &shared, &got) == cudaSuccess);
  CHECK(grid.x == 4);
  CHECK(block.x == 5);
  CHECK(shared == 6);
  CHECK(got == stream);
  REQUIRE(__cudaPopCallConfiguration(&grid, &block, &shared, &got) == cudaSuccess);
  CHECK(grid.x == 1);
  CHECK(__cudaPopCallConfiguration(&grid, &block, &shared, &got) == cudaErrorMissingConfiguration);
}

TEST_CASE("occupancy follows the block's size", "[simcuda][runtime]") {
  const RuntimeMachine machine;
  const DeviceCode code;
  const auto blocks = [](int size, size_t shared) {
    int count = -1;
    REQUIRE(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&count, &DeviceCode::kernel, size,
                                                          shared) == cudaSuccess);
    return count;
  };
  CHECK(blocks(1024, 0) == 2);
  CHECK(blocks(33, 0) == 32);
  CHECK(blocks(32, 100 << 10) == 2);
  CHECK(blocks(2048, 0) == 0);
}

TEST_CASE("a kernel keeps the attributes that may be set", "[simcuda][runtime]") {
  const RuntimeMachine machine;
  const DeviceCode code;
  const void* const kernel = &DeviceCode::kernel;
  cudaFuncAttributes attributes;
  REQUIRE(cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess);
  CHECK(attributes.maxThreadsPerBlock == 1024);
  CHECK(attributes.maxDynamicSharedSizeBytes == 48 << 10);
  const auto set = [=](cudaFuncAttribute attribute, int value) {
    return cudaFuncSetAttribute(kernel, attribute, value);
  };
  CHECK(set(cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10) == cudaSuccess);
  CHECK(set(cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 20) == cudaErrorInvalidValue);
  CHECK(set(cudaFuncAttributePreferredSharedMemoryCarveout, 101) == cudaErrorInvalidValue);
  CHECK(set(cudaFuncAttributeRequiredClusterWidth, 1) == cudaErrorNotSupported);
  REQUIRE(cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess);
  CHECK(attributes.maxDynamicSharedSizeBytes == 100 << 10);
  int unknown = 0;
  CHECK(cudaFuncGetAttributes(&attributes, &unknown) == cudaErrorInvalidDeviceFunction);
}

TEST_CASE("a variable has memory on each device", "[simcuda][runtime]") {
  const RuntimeMachine machine(TwoDevices());
  const DeviceCode code;
  void* first = nullptr;
  void* second = nullptr;
  REQUIRE(cudaGetSymbolAddress(&first, DeviceCode::variable) == cudaSuccess);
  REQUIRE(cudaGetSymbolAddress(&second, DeviceCode::variable) == cudaSuccess);
  CHECK(first == second);
  size_t bytes = 0;
  REQUIRE(cudaGetSymbolSize(&bytes, DeviceCode::variable) == cudaSuccess);
  CHECK(bytes == 64);
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  REQUIRE(cudaGetSymbolAddress(&second, DeviceCode::variable) == cudaSuccess);
  CHECK(first != second);

  const int written = 7;
  int read = 0;
  REQUIRE(cudaMemcpyToSymbol(DeviceCode::variable, &written, 4, 60) == cudaSuccess);
  REQUIRE(cudaMemcpyFromSymbol(&read, DeviceCode::variable, 4, 60) == cudaSuccess);
  CHECK(read == 7);
  CHECK(cudaMemcpyToSymbol(DeviceCode::variable, &written, 4, 61) == cudaErrorInvalidValue);
  CHECK(cudaGetSymbolAddress(&first, &read) == cudaErrorInvalidSymbol);
}

TEST_CASE("what the device cannot do is not supported", "[simcuda][runtime]") {
  const RuntimeMachine machine;
  cudaLibrary_t library = nullptr;
  CHECK(cudaLibraryLoadFromFile(&library, "code.cubin", nullptr, nullptr, 0, nullptr, nullptr, 0) ==
        cudaErrorNotSupported);
  unsigned int kernels = 0;
  CHECK(cudaLibraryGetKernelCount(&kernels, library) == cudaErrorInvalidResourceHandle);
  cudaGraphConditionalHandle condition;
  CHECK(cudaGraphConditionalHandleCreate(&condition, nullptr, 0, 0) == cudaErrorNotSupported);
  CHECK(cudaGetLastError() == cudaErrorNotSupported);
}

}  // namespace
}  // namespace weir::sim
