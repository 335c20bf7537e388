// Modules without device code, and their functions, which do nothing.
#include <string>

#include "tests/simcuda/time_fixture.h"

namespace weir::sim {
namespace {

// clang-format off
#define WEIR_MODULE_TEST_FUNCTIONS(F)                                                             \
  F(cuModuleLoad, 2000) F(cuModuleLoadData, 2000) F(cuModuleLoadDataEx, 2010)                     \
  F(cuModuleUnload, 2000) F(cuModuleGetFunction, 2000) F(cuFuncGetAttribute, 2020)                \
  F(cuFuncSetAttribute, 9000) F(cuFuncSetCacheConfig, 3000) F(cuLaunchKernel, 4000)               \
  F(cuLaunchKernelEx, 11060) F(cuLaunchCooperativeKernel, 9000)                                   \
  F(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050)                                            \
  F(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000)                                   \
  F(cuOccupancyMaxPotentialBlockSize, 6050) F(cuDevicePrimaryCtxReset, 11000)
// clang-format on

struct ModuleDriver : Driver {
#define WEIR_DECLARE(name, version) \
  PFN_##name##_v##version name = Resolve<PFN_##name##_v##version>(#name, version);
  WEIR_MODULE_TEST_FUNCTIONS(WEIR_DECLARE)
#undef WEIR_DECLARE
};

const ModuleDriver& Gpu() {
  static const ModuleDriver driver;
  return driver;
}

constexpr char kImage[] = "weir simulated kernel image";

CUmodule NewModule() {
  CUmodule module = nullptr;
  REQUIRE(Gpu().cuModuleLoadData(&module, kImage) == CUDA_SUCCESS);
  return module;
}

CUfunction FunctionOf(CUmodule module, const char* name = "kernel") {
  CUfunction function = nullptr;
  REQUIRE(Gpu().cuModuleGetFunction(&function, module, name) == CUDA_SUCCESS);
  return function;
}

CUresult LaunchOn(CUstream stream, CUfunction function, unsigned int blocks = 4,
                  unsigned int threads = 128, unsigned int shared_bytes = 0) {
  return Gpu().cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, shared_bytes, stream, nullptr,
                              nullptr);
}

CUstream HandleAsStream(CUfunction function) { return reinterpret_cast<CUstream>(function); }

int AttributeOf(CUfunction function, CUfunction_attribute attribute) {
  int value = -2;
  REQUIRE(Gpu().cuFuncGetAttribute(&value, attribute, function) == CUDA_SUCCESS);
  return value;
}

TEST_CASE("only images without device code are loaded", "[simcuda][module]") {
  const Machine machine;
  CUmodule module = nullptr;
  const auto load = [&module](const char* image) { return Gpu().cuModuleLoadData(&module, image); };
  CHECK(load("weir simulated kernel image of something") == CUDA_SUCCESS);
  CHECK(module != nullptr);
  module = nullptr;
  const std::string cut(kImage, sizeof(kImage) - 2);
  const char elf[] = "\177ELF\2\1\1";
  CHECK(load(cut.c_str()) == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(load(elf) == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(load(".version 9.0\n.target sm_90\n") == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(load("") == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(load(nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuModuleLoadData(nullptr, kImage) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuModuleLoad(&module, "/kernels.cubin") == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(module == nullptr);
}

TEST_CASE("options of loading need values, and logs are empty", "[simcuda][module]") {
  const Machine machine;
  CUmodule module = nullptr;
  char log[16] = {};
  CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof(log)), reinterpret_cast<void*>(1)};
  const auto load = [&](unsigned int count, CUjit_option* keys, void** given) {
    return Gpu().cuModuleLoadDataEx(&module, kImage, count, keys, given);
  };
  CHECK(load(3, nullptr, values) == CUDA_ERROR_INVALID_VALUE);
  CHECK(load(3, options, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(module == nullptr);
  CHECK(load(3, options, values) == CUDA_SUCCESS);
  CHECK(values[0] == log);
  CHECK(values[1] == nullptr);
  CHECK(values[2] == nullptr);
  CHECK(load(0, nullptr, nullptr) == CUDA_SUCCESS);
  CHECK(Gpu().cuModuleLoadDataEx(&module, "other", 0, nullptr, nullptr) ==
        CUDA_ERROR_NOT_SUPPORTED);
}

TEST_CASE("a module has one function of every name until it is unloaded", "[simcuda][module]") {
  const Machine machine;
  const CUmodule module = NewModule();
  const CUmodule other = NewModule();
  const CUfunction function = FunctionOf(module, "f");
  CHECK(FunctionOf(module, "f") == function);
  CHECK(FunctionOf(module, "g<float, 4>") != function);
  CHECK(FunctionOf(other, "f") != function);

  CUfunction found = nullptr;
  const auto get = Gpu().cuModuleGetFunction;
  CHECK(get(nullptr, module, "f") == CUDA_ERROR_INVALID_VALUE);
  CHECK(get(&found, module, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(get(&found, module, "") == CUDA_ERROR_NOT_FOUND);
  CHECK(get(&found, nullptr, "f") == CUDA_ERROR_INVALID_HANDLE);
  CHECK(get(&found, reinterpret_cast<CUmodule>(function), "f") == CUDA_ERROR_INVALID_HANDLE);
  CHECK(found == nullptr);

  REQUIRE(Gpu().cuModuleUnload(module) == CUDA_SUCCESS);
  CHECK(Gpu().cuModuleUnload(module) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(get(&found, module, "f") == CUDA_ERROR_INVALID_HANDLE);
  CHECK(LaunchOn(nullptr, function) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(LaunchOn(nullptr, FunctionOf(other, "f")) == CUDA_SUCCESS);
  REQUIRE(Gpu().cuDevicePrimaryCtxReset(0) == CUDA_SUCCESS);
  CHECK(get(&found, other, "f") == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("a launch takes its place in its stream", "[simcuda][module]") {
  const Machine machine;
  const CUstream stream = NewStream();
  const CUfunction function = FunctionOf(NewModule());
  HoldStream(0, stream);
  const uint64_t calls = CallCount("cuLaunchKernel");
  REQUIRE(LaunchOn(stream, function) == CUDA_SUCCESS);
  CHECK(QueuedOperations() == 1);
  CHECK(CallCount("cuLaunchKernel") == calls + 1);
  CHECK(Gpu().cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
  ReleaseStream(0, stream);
  CHECK(Gpu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(QueuedOperations() == 0);
  CHECK(CheckerReports().empty());
}

TEST_CASE("each kind of launch is a node of a graph, and loading ends the capture",
          "[simcuda][module]") {
  const Machine machine;
  const CUstream stream = NewStream();
  const CUmodule module = NewModule();
  Begin(stream);
  const CUfunction function = FunctionOf(module);
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  REQUIRE(LaunchOn(stream, function) == CUDA_SUCCESS);
  REQUIRE(Gpu().cuLaunchKernelEx(&config, function, nullptr, nullptr) == CUDA_SUCCESS);
  REQUIRE(Gpu().cuLaunchCooperativeKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, nullptr) ==
          CUDA_SUCCESS);
  CHECK(QueuedOperations() == 0);
  const CUgraph graph = End(stream);
  CHECK(NodeCount(graph) == 3);
  REQUIRE(Gpu().cuGraphLaunch(MakeExec(graph), stream) == CUDA_SUCCESS);
  CHECK(Gpu().cuStreamSynchronize(stream) == CUDA_SUCCESS);

  Begin(stream);
  CUmodule late = nullptr;
  CHECK(Gpu().cuModuleLoadData(&late, kImage) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(Status(stream) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
}

TEST_CASE("a launch outside of what the device and the function take is refused",
          "[simcuda][module]") {
  Config config;
  config.devices = 2;
  const Machine machine(config);
  const CUstream stream = NewStream();
  const CUfunction function = FunctionOf(NewModule());
  HoldStream(0, stream);
  const auto launch = [=](unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
                          unsigned int by, unsigned int bz) {
    return Gpu().cuLaunchKernel(function, gx, gy, gz, bx, by, bz, 0, stream, nullptr, nullptr);
  };
  CHECK(launch(0, 1, 1, 1, 1, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch(1, 0, 1, 1, 1, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch(1, 1, 0, 1, 1, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch(1, 1, 1, 0, 1, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch(1, 1, 1, 1025, 1, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch(1, 1, 1, 512, 3, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch(1, 1, 1, 1u << 31, 2, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(LaunchOn(stream, function, 1, 1, (48 << 10) + 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(LaunchOn(stream, nullptr) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(LaunchOn(HandleAsStream(function), function) == CUDA_ERROR_INVALID_HANDLE);
  void* arguments[] = {nullptr};
  CHECK(Gpu().cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, arguments) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuLaunchKernelEx(nullptr, function, nullptr, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CUlaunchConfig clusters{};
  clusters.gridDimX = clusters.gridDimY = clusters.gridDimZ = 1;
  clusters.blockDimX = clusters.blockDimY = clusters.blockDimZ = 1;
  clusters.hStream = stream;
  clusters.numAttrs = 1;
  CHECK(Gpu().cuLaunchKernelEx(&clusters, function, nullptr, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  clusters.attrs = &attribute;
  CHECK(Gpu().cuLaunchKernelEx(&clusters, function, nullptr, nullptr) == CUDA_ERROR_NOT_SUPPORTED);
  Machine::UseDevice(1);
  CHECK(LaunchOn(nullptr, function) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(QueuedOperations() == 0);
}

TEST_CASE("a function has the attributes that are assumed of all and those that were set",
          "[simcuda][module]") {
  const Machine machine;
  const CUfunction function = FunctionOf(NewModule());
  CHECK(AttributeOf(function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) == 1024);
  CHECK(AttributeOf(function, CU_FUNC_ATTRIBUTE_NUM_REGS) == 32);
  CHECK(AttributeOf(function, CU_FUNC_ATTRIBUTE_BINARY_VERSION) == 90);
  CHECK(AttributeOf(function, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES) == 0);
  CHECK(AttributeOf(function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) == -1);

  const CUfunction_attribute shared = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  const auto set = Gpu().cuFuncSetAttribute;
  CHECK(AttributeOf(function, shared) == 48 << 10);
  REQUIRE(set(function, shared, 227 << 10) == CUDA_SUCCESS);
  CHECK(AttributeOf(function, shared) == 227 << 10);
  CHECK(LaunchOn(nullptr, function, 1, 1, 227 << 10) == CUDA_SUCCESS);
  CHECK(set(function, shared, (227 << 10) + 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(set(function, shared, -1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(set(function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50) == CUDA_SUCCESS);
  CHECK(AttributeOf(function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) == 50);
  CHECK(set(function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 101) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(set(function, CU_FUNC_ATTRIBUTE_NUM_REGS, 16) == CUDA_ERROR_INVALID_VALUE);
  CHECK(set(function, CU_FUNC_ATTRIBUTE_MAX, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(set(function, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 2) == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(set(nullptr, shared, 0) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(AttributeOf(function, shared) == 227 << 10);

  int value = 0;
  CHECK(Gpu().cuFuncGetAttribute(nullptr, shared, function) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX, function) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuFuncGetAttribute(&value, shared, nullptr) == CUDA_ERROR_INVALID_HANDLE);
  const auto prefer = Gpu().cuFuncSetCacheConfig;
  CHECK(prefer(function, CU_FUNC_CACHE_PREFER_L1) == CUDA_SUCCESS);
  CHECK(prefer(nullptr, CU_FUNC_CACHE_PREFER_L1) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("occupancy follows from threads, registers and shared memory", "[simcuda][module]") {
  const Machine machine;
  const CUfunction function = FunctionOf(NewModule());
  const auto blocks = [function](int size, size_t shared) {
    int count = -1;
    REQUIRE(Gpu().cuOccupancyMaxActiveBlocksPerMultiprocessor(&count, function, size, shared) ==
            CUDA_SUCCESS);
    return count;
  };
  CHECK(blocks(1024, 0) == 2);
  CHECK(blocks(33, 0) == 32);
  CHECK(blocks(128, 100 << 10) == 2);
  CHECK(blocks(1025, 0) == 0);
  CHECK(blocks(32, 228 << 10) == 0);

  int count = -1;
  const auto with_flags = Gpu().cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags;
  CHECK(with_flags(&count, function, 1024, 0, CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) ==
        CUDA_SUCCESS);
  CHECK(count == 2);
  CHECK(with_flags(&count, function, 1024, 0, 2) == CUDA_ERROR_INVALID_VALUE);
  CHECK(with_flags(nullptr, function, 1024, 0, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(with_flags(&count, function, 0, 0, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(with_flags(&count, nullptr, 1024, 0, 0) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("the potential block size is the largest with the most threads at a time",
          "[simcuda][module]") {
  const Machine machine;
  const CUfunction function = FunctionOf(NewModule());
  int grid = -1;
  int block = -1;
  const auto potential = Gpu().cuOccupancyMaxPotentialBlockSize;
  REQUIRE(potential(&grid, &block, function, nullptr, 0, 0) == CUDA_SUCCESS);
  CHECK(block == 1024);
  CHECK(grid == 2 * 132);
  REQUIRE(potential(&grid, &block, function, nullptr, 0, 700) == CUDA_SUCCESS);
  CHECK(block == 512);  // four of them; two of 700 or three of 672 are fewer threads
  CHECK(grid == 4 * 132);
  // 1 KiB for each thread: no more than 227 threads in a block, none of them calling CUDA.
  static CUresult inside;
  REQUIRE(potential(
              &grid, &block, function,
              [](int threads) {
                inside = Gpu().cuCtxSynchronize();
                return static_cast<size_t>(threads) << 10;
              },
              0, 0) == CUDA_SUCCESS);
  CHECK(inside == CUDA_ERROR_NOT_PERMITTED);
  CHECK(block == 224);
  CHECK(grid == 132);
  REQUIRE(potential(&grid, &block, function, nullptr, 1 << 20, 0) == CUDA_SUCCESS);
  CHECK(grid == 0);
  CHECK(block == 0);

  CHECK(potential(nullptr, &block, function, nullptr, 0, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(potential(&grid, nullptr, function, nullptr, 0, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(potential(&grid, &block, function, nullptr, 0, -1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(potential(&grid, &block, nullptr, nullptr, 0, 0) == CUDA_ERROR_INVALID_HANDLE);
}

}  // namespace
}  // namespace weir::sim
