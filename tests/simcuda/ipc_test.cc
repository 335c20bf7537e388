// Memory and events of other processes, with a real second process.
#include <unistd.h>

#include "tests/simcuda/ipc_peer.h"
#include "tests/simcuda/space_fixture.h"

namespace weir::sim {
namespace {

constexpr auto kPosix = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

CUdeviceptr NewClassic(uint64_t bytes, uint8_t value) {
  CUdeviceptr memory = 0;
  REQUIRE(Gpu().cuMemAlloc(&memory, bytes) == CUDA_SUCCESS);
  FillNow(memory, value, bytes);
  return memory;
}

CUipcMemHandle HandleOf(CUdeviceptr memory) {
  CUipcMemHandle handle;
  REQUIRE(Gpu().cuIpcGetMemHandle(&handle, memory) == CUDA_SUCCESS);
  return handle;
}

CUevent NewSharedEvent(CUipcEventHandle* handle) {
  CUevent event = nullptr;
  REQUIRE(Gpu().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS) ==
          CUDA_SUCCESS);
  REQUIRE(Gpu().cuIpcGetEventHandle(handle, event) == CUDA_SUCCESS);
  return event;
}

CUresult Open(CUdeviceptr* memory, const CUipcMemHandle& handle,
              unsigned int flags = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
  return Gpu().cuIpcOpenMemHandle(memory, handle, flags);
}

}  // namespace

TEST_CASE("another process reads and writes classic memory through its handle", "[ipc]") {
  const uint64_t bytes = GENERATE(uint64_t{3000}, 5 * kMiB);  // part of a frame, and frames
  Machine machine;
  NewClassic(4096, 9);  // so that the small one does not begin its frame
  const CUdeviceptr memory = NewClassic(bytes, 21);
  PeerProcess peer;
  const PeerMessage opened =
      peer.Ask({.task = PeerTask::kOpen, .bytes = bytes, .memory = HandleOf(memory)});
  CHECK(opened.result == CUDA_SUCCESS);
  CHECK(opened.value == 21);
  CHECK(peer.Ask(PeerTask::kRead).value == 21);  // the last byte
  peer.Ask({.task = PeerTask::kWrite, .value = 22});
  CHECK(ByteAt(memory) == 22);
  CHECK(ByteAt(memory + bytes - 1) == 22);
  FillNow(memory, 23, bytes);
  CHECK(peer.Ask(PeerTask::kRead).value == 23);
  CHECK(peer.Ask(PeerTask::kUsed).value == 0);  // it is this process's memory
  CHECK(peer.Ask(PeerTask::kClose).result == CUDA_SUCCESS);
  CHECK(peer.Ask(PeerTask::kClose).result == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("classic memory of another process is opened once and counted", "[ipc]") {
  Machine machine;
  PeerProcess peer;
  const CUipcMemHandle handle =
      peer.Ask({.task = PeerTask::kAllocate, .bytes = kGranule, .value = 31}).memory;
  CUdeviceptr memory = 0;
  CHECK(Open(&memory, handle, 0) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(Open(&memory, handle) == CUDA_SUCCESS);
  CUdeviceptr again = 0;
  REQUIRE(Open(&again, handle) == CUDA_SUCCESS);
  CHECK(again == memory);
  CHECK(ByteAt(memory) == 31);
  CHECK(UsedBytes(0) == 0);
  CHECK(PointerAttribute<unsigned int>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory) ==
        CU_MEMORYTYPE_DEVICE);
  CHECK(Gpu().cuMemFree(memory) == CUDA_ERROR_INVALID_VALUE);
  CUipcMemHandle onwards;
  CHECK(Gpu().cuIpcGetMemHandle(&onwards, memory) == CUDA_ERROR_INVALID_VALUE);
  CHECK(Gpu().cuIpcCloseMemHandle(memory) == CUDA_SUCCESS);
  CHECK(ByteAt(memory) == 31);
  CHECK(Gpu().cuIpcCloseMemHandle(memory) == CUDA_SUCCESS);
  CHECK(Gpu().cuIpcCloseMemHandle(memory) == CUDA_ERROR_INVALID_VALUE);
  CHECK(TryWrite(memory) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("a handle is opened by other processes only, and while its memory lives", "[ipc]") {
  Machine machine;
  const CUdeviceptr memory = NewClassic(kGranule, 1);
  const CUipcMemHandle handle = HandleOf(memory);
  CUdeviceptr opened = 0;
  CHECK(Open(&opened, handle) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(Open(&opened, CUipcMemHandle{}) == CUDA_ERROR_INVALID_VALUE);
  CUipcMemHandle inside;
  CHECK(Gpu().cuIpcGetMemHandle(&inside, memory + 512) == CUDA_ERROR_INVALID_VALUE);
  PeerProcess peer;
  REQUIRE(Gpu().cuMemFree(memory) == CUDA_SUCCESS);
  CHECK(peer.Ask({.task = PeerTask::kOpen, .bytes = kGranule, .memory = handle}).result ==
        CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("memory that another process has open is given back when that closes it or dies",
          "[ipc]") {
  Machine machine;
  const CUdeviceptr memory = NewClassic(kGranule, 41);
  const bool killed = GENERATE(false, true);
  PeerProcess peer;
  REQUIRE(
      peer.Ask({.task = PeerTask::kOpen, .bytes = kGranule, .memory = HandleOf(memory)}).result ==
      CUDA_SUCCESS);
  REQUIRE(Gpu().cuMemFree(memory) == CUDA_SUCCESS);
  CHECK(UsedBytes(0) == kGranule);
  NewClassic(kGranule, 42);
  CHECK(peer.Ask(PeerTask::kRead).value == 41);
  if (killed) {
    peer.Kill();
  } else {
    REQUIRE(peer.Ask(PeerTask::kClose).result == CUDA_SUCCESS);
  }
  CHECK(UsedBytes(0) == kGranule);  // the other one
}

TEST_CASE("another process maps a handle that it got as a descriptor", "[ipc]") {
  Machine machine;
  CUmemAllocationProp prop = DeviceMemory();
  prop.requestedHandleTypes = kPosix;
  CUmemGenericAllocationHandle handle = 0;
  REQUIRE(Gpu().cuMemCreate(&handle, 2 * kGranule, &prop, 0) == CUDA_SUCCESS);
  const CUdeviceptr base = NewReservation(2 * kGranule);
  MapAt(base, 2 * kGranule, handle);
  FillNow(base, 51, 2 * kGranule);
  int fd = -1;
  REQUIRE(Gpu().cuMemExportToShareableHandle(&fd, handle, kPosix, 0) == CUDA_SUCCESS);
  PeerProcess peer;
  const PeerMessage imported = peer.Ask({.task = PeerTask::kImport, .bytes = 2 * kGranule}, fd);
  close(fd);
  REQUIRE(imported.result == CUDA_SUCCESS);
  CHECK(imported.value == 51);
  peer.Ask({.task = PeerTask::kWrite, .value = 52});
  CHECK(ByteAt(base + 2 * kGranule - 1) == 52);
  CHECK(peer.Ask(PeerTask::kUsed).value == 0);

  // The memory outlives its owner's references.
  REQUIRE(Gpu().cuMemUnmap(base, 2 * kGranule) == CUDA_SUCCESS);
  REQUIRE(Gpu().cuMemRelease(handle) == CUDA_SUCCESS);
  CHECK(UsedBytes(0) == 2 * kGranule);
  CHECK(peer.Ask(PeerTask::kRead).value == 52);
  REQUIRE(peer.Ask(PeerTask::kClose).result == CUDA_SUCCESS);
  CHECK(UsedBytes(0) == 0);
}

TEST_CASE("a descriptor from another process can be imported and passed on after that has ended",
          "[ipc]") {
  Machine machine;
  int fd = -1;
  {
    PeerProcess maker;
    const PeerMessage made =
        maker.Ask({.task = PeerTask::kCreate, .bytes = kGranule, .value = 61}, -1, &fd);
    REQUIRE(made.result == CUDA_SUCCESS);
    REQUIRE(fd >= 0);
  }
  CUmemGenericAllocationHandle imported = 0;
  REQUIRE(Gpu().cuMemImportFromShareableHandle(&imported,
                                               reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                               kPosix) == CUDA_SUCCESS);
  close(fd);
  const CUdeviceptr base = NewReservation(kGranule);
  MapAt(base, kGranule, imported);
  CHECK(ByteAt(base) == 61);
  CHECK(UsedBytes(0) == 0);
  int onwards = -1;
  REQUIRE(Gpu().cuMemExportToShareableHandle(&onwards, imported, kPosix, 0) == CUDA_SUCCESS);
  PeerProcess third;
  CHECK(third.Ask({.task = PeerTask::kImport, .bytes = kGranule}, onwards).value == 61);
  close(onwards);
}

TEST_CASE("an event of another process completes when its record there has run", "[ipc]") {
  Machine machine;
  CUipcEventHandle handle;
  const CUevent event = NewSharedEvent(&handle);
  PeerProcess peer;
  REQUIRE(peer.Ask({.task = PeerTask::kOpenEvent, .event = handle}).result == CUDA_SUCCESS);
  CHECK(peer.Ask(PeerTask::kQueryEvent).result == CUDA_SUCCESS);  // never recorded
  const CUdeviceptr memory = NewClassic(kGranule, 71);
  REQUIRE(
      peer.Ask({.task = PeerTask::kOpen, .bytes = kGranule, .memory = HandleOf(memory)}).result ==
      CUDA_SUCCESS);
  const CUstream stream = NewStream();
  HoldStream(0, stream);
  REQUIRE(Gpu().cuMemsetD8Async(memory, 72, kGranule, stream) == CUDA_SUCCESS);
  REQUIRE(Gpu().cuEventRecord(event, stream) == CUDA_SUCCESS);
  CHECK(peer.Ask(PeerTask::kQueryEvent).result == CUDA_ERROR_NOT_READY);
  ReleaseStream(0, stream);
  REQUIRE(Gpu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(peer.Ask(PeerTask::kSynchronizeEvent).result == CUDA_SUCCESS);
  CHECK(peer.Ask(PeerTask::kWaitAndRead).value == 72);

  // A record runs what is ready, or the other process would wait for this one's next call.
  REQUIRE(Gpu().cuMemsetD8Async(memory, 73, kGranule, stream) == CUDA_SUCCESS);
  REQUIRE(Gpu().cuEventRecord(event, stream) == CUDA_SUCCESS);
  CHECK(peer.Ask(PeerTask::kWaitAndRead).value == 73);

  // The other way round.
  REQUIRE(peer.Ask(PeerTask::kRecordEvent).result == CUDA_SUCCESS);
  CHECK(Gpu().cuEventQuery(event) == CUDA_SUCCESS);
  CHECK(Gpu().cuEventSynchronize(event) == CUDA_SUCCESS);
}

TEST_CASE("only events made for it are shared, and not within one process", "[ipc]") {
  Machine machine;
  CUipcEventHandle handle;
  CUevent opened = nullptr;
  CHECK(Gpu().cuIpcGetEventHandle(&handle, NewEvent()) == CUDA_ERROR_INVALID_VALUE);
  const CUevent event = NewSharedEvent(&handle);
  CHECK(Gpu().cuIpcOpenEventHandle(&opened, handle) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(Gpu().cuIpcOpenEventHandle(&opened, CUipcEventHandle{}) == CUDA_ERROR_INVALID_VALUE);
  PeerProcess peer;
  REQUIRE(Gpu().cuEventDestroy(event) == CUDA_SUCCESS);
  CHECK(peer.Ask({.task = PeerTask::kOpenEvent, .event = handle}).result ==
        CUDA_ERROR_INVALID_VALUE);
}

}  // namespace weir::sim
