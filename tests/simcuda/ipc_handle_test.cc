// Shareable handles within one process, and descriptors that are none.
#include <sys/mman.h>
#include <unistd.h>

#include "tests/simcuda/space_fixture.h"
#include "tools/simcuda/shared_object.h"

namespace weir::sim {

TEST_CASE("an exported handle is imported as another handle of the same memory", "[ipc]") {
  Machine machine;
  CUmemAllocationProp prop = DeviceMemory();
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle handle = 0;
  REQUIRE(Gpu().cuMemCreate(&handle, kGranule, &prop, 0) == CUDA_SUCCESS);
  int fd = -1;
  const auto posix = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  REQUIRE(Gpu().cuMemExportToShareableHandle(&fd, handle, posix, 0) == CUDA_SUCCESS);
  const auto import = [posix](int from, CUmemGenericAllocationHandle* to) {
    return Gpu().cuMemImportFromShareableHandle(
        to, reinterpret_cast<void*>(static_cast<intptr_t>(from)), posix);
  };
  CUmemGenericAllocationHandle imported = 0;
  REQUIRE(import(fd, &imported) == CUDA_SUCCESS);
  CHECK(imported != handle);
  REQUIRE(Gpu().cuMemRelease(handle) == CUDA_SUCCESS);
  CHECK(UsedBytes(0) == kGranule);
  const CUdeviceptr base = NewReservation(kGranule);
  MapAt(base, kGranule, imported);
  FillNow(base, 1, 1);

  CHECK(import(-1, &handle) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuMemExportToShareableHandle(&fd, handle, posix, 0) == CUDA_ERROR_INVALID_VALUE);
  const CUmemGenericAllocationHandle plain = NewHandle();  // did not ask to be shareable
  int other = -1;
  CHECK(Gpu().cuMemExportToShareableHandle(&other, plain, posix, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuMemExportToShareableHandle(&other, imported, CU_MEM_HANDLE_TYPE_FABRIC, 0) ==
        CUDA_ERROR_NOT_SUPPORTED);
  REQUIRE(Gpu().cuMemRelease(imported) == CUDA_SUCCESS);
  REQUIRE(Gpu().cuMemUnmap(base, kGranule) == CUDA_SUCCESS);
  // The descriptor still holds the memory, with what it had.
  CHECK(UsedBytes(0) == 2 * kGranule);
  REQUIRE(import(fd, &imported) == CUDA_SUCCESS);
  close(fd);
  MapAt(base, kGranule, imported);
  CHECK(ByteAt(base) == 1);
  REQUIRE(Gpu().cuMemRelease(imported) == CUDA_SUCCESS);
  REQUIRE(Gpu().cuMemUnmap(base, kGranule) == CUDA_SUCCESS);
  CHECK(UsedBytes(0) == kGranule);  // the one that cannot be shared
}

TEST_CASE("what is no shareable handle is not imported", "[ipc]") {
  Machine machine;
  const auto import = [](int from) {
    CUmemGenericAllocationHandle imported = 0;
    return Gpu().cuMemImportFromShareableHandle(
        &imported, reinterpret_cast<void*>(static_cast<intptr_t>(from)),
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  };
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  CHECK(import(ends[0]) == CUDA_ERROR_INVALID_VALUE);
  const int file = memfd_create("anything", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  REQUIRE(file >= 0);
  CHECK(import(file) == CUDA_ERROR_INVALID_VALUE);
  SharedObject object;
  object.bytes = kGranule;
  object.extents = {{0, kGranule}};
  REQUIRE(ftruncate(file, kGranule) == 0);
  const uint64_t position = WriteRecord(file, object);
  REQUIRE(lseek(file, static_cast<off_t>(position), SEEK_SET) >= 0);
  CHECK(import(file) == CUDA_ERROR_INVALID_VALUE);  // it may shrink under its user
  REQUIRE(SealFile(file));
  CHECK(import(file) == CUDA_SUCCESS);
  const SharedObject wrong = GENERATE(
      SharedObject{kGranule, 0, 0, false, {{kGranule * 64, kGranule}}},  // outside the file
      SharedObject{kGranule, 0, 0, false, {{0, kGranule / 2}}},          // too little
      SharedObject{kGranule, 0, 0, false, {{512, kGranule}}},            // no whole pages
      SharedObject{kGranule, 0, 0, false, {{0, UINT64_MAX - 4095}, {0, kGranule + 4096}}},
      SharedObject{0, 0, 0, false, {}}, SharedObject{kGranule, 5, 0, false, {{0, kGranule}}});
  const uint64_t at = WriteRecord(file, wrong);
  REQUIRE(lseek(file, static_cast<off_t>(at), SEEK_SET) >= 0);
  CHECK(import(file) == (wrong.device == 5 ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE));
  close(file);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace weir::sim
