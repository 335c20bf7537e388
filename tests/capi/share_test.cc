// What weir/share.h promises, in C, within one process.
#include <unistd.h>

#include <vector>

#include "tests/capi/simulated_weir.h"
#include "weir/share.h"

namespace weir::test {
namespace {

bool CanMap() { return !IsPassthrough() && TestOptions() != "vmm:off"; }

TEST_CASE("memory is exported and imported, and its bytes are the same at both addresses",
          "[share]") {
  const SimulatedWeir weir;
  void* block = weir_malloc(3 * kMiB);
  REQUIRE(block != nullptr);
  std::vector<uint64_t> bytes(16);
  std::vector<int> fds(16);
  weir_export_t exported = {};
  const int result = weir_export(block, bytes.data(), fds.data(), fds.size(), &exported);
  if (!CanMap()) {
    CHECK(result == WEIR_ERROR_CONFIGURATION);
    CHECK(ErrorSays("cudaIpcGetMemHandle"));
    REQUIRE(weir_free(block) == WEIR_OK);
    return;
  }
  REQUIRE(result == WEIR_OK);
  CHECK(weir_export(block, nullptr, nullptr, 0, &exported) == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(weir_export(block, nullptr, nullptr, 1, &exported) == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(ErrorSays("NULL"));
  void* imported = nullptr;
  REQUIRE(weir_import(0, fds.data(), bytes.data(), exported.count, &imported) == WEIR_OK);
  for (size_t i = 0; i < exported.count; ++i) close(fds[i]);
  auto* there = static_cast<char*>(imported) + exported.offset;
  REQUIRE(weir_memset(block, 5, 3 * kMiB) == WEIR_OK);
  std::vector<char> read(3 * kMiB);
  REQUIRE(weir_memcpy(read.data(), there, read.size()) == WEIR_OK);
  CHECK(read == std::vector<char>(3 * kMiB, 5));
  CHECK(weir_free(imported) == WEIR_ERROR_NOT_OWNED);
  CHECK(weir_close_import(there + 512) == WEIR_ERROR_NOT_OWNED);
  REQUIRE(weir_close_import(imported) == WEIR_OK);
  CHECK(weir_close_import(imported) == WEIR_ERROR_NOT_OWNED);
  REQUIRE(weir_free(block) == WEIR_OK);
  REQUIRE(weir_unexport(block) == WEIR_OK);
  CHECK(weir_unexport(block) == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(weir_import(0, nullptr, bytes.data(), 1, &imported) == WEIR_ERROR_INVALID_ARGUMENT);
}

TEST_CASE("peer access is between devices that exist, and can be asked for again", "[share]") {
  const SimulatedWeir weir;
  CHECK(weir_enable_peer_access(0, 1) == WEIR_OK);
  CHECK(weir_enable_peer_access(0, 1) == WEIR_OK);
  CHECK(weir_enable_peer_access(1, 0) == WEIR_OK);
  CHECK(weir_enable_peer_access(0, 0) == WEIR_OK);
  CHECK(weir_enable_peer_access(0, 2) == WEIR_ERROR_NO_DEVICE);
  CHECK(weir_enable_peer_access(-1, 0) == WEIR_ERROR_NO_DEVICE);
  void* block = weir_malloc(3 * kMiB);
  REQUIRE(block != nullptr);
  {
    const CurrentDevice peer(1);
    CHECK(DriverEntry<CUresult(CUdeviceptr, unsigned char, size_t, CUstream)>(
              "cuMemsetD8Async", 3020)(reinterpret_cast<CUdeviceptr>(block), 1, 3 * kMiB,
                                       nullptr) == CUDA_SUCCESS);
    CHECK(DriverEntry<CUresult()>("cuCtxSynchronize", 2000)() == CUDA_SUCCESS);
  }
  REQUIRE(weir_free(block) == WEIR_OK);
}

}  // namespace
}  // namespace weir::test
