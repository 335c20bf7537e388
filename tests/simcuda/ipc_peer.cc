#include "tests/simcuda/ipc_peer.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/simcuda/space_fixture.h"

namespace weir::sim {
namespace {

constexpr char kSocketVariable[] = "WEIR_TEST_PEER_SOCKET";
constexpr auto kPosix = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

// What the peer has at the moment.
struct Peered {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
  CUmemGenericAllocationHandle handle = 0;  // 0: the memory is classic
  CUevent event = nullptr;
};

uint64_t FirstByte(CUdeviceptr address) {
  unsigned char byte = 0;
  REQUIRE(Gpu().cuMemcpyDtoH(&byte, address, 1) == CUDA_SUCCESS);
  return byte;
}

CUdeviceptr MapAnywhere(CUmemGenericAllocationHandle handle, uint64_t bytes) {
  const CUdeviceptr base = NewReservation(bytes);
  MapAt(base, bytes, handle);
  return base;
}

CUresult Import(int fd, CUmemGenericAllocationHandle* handle) {
  return Gpu().cuMemImportFromShareableHandle(
      handle, reinterpret_cast<void*>(static_cast<intptr_t>(fd)), kPosix);
}

CUresult Close(const Peered& peered) {
  if (peered.handle == 0) return Gpu().cuIpcCloseMemHandle(peered.address);
  const CUresult result = Gpu().cuMemUnmap(peered.address, peered.bytes);
  return result == CUDA_SUCCESS ? Gpu().cuMemRelease(peered.handle) : result;
}

// Does what is asked; fd is closed by the caller. Returns the descriptor to answer with.
int Serve(const PeerMessage& request, int fd, Peered* peered, PeerMessage* answer) {
  switch (request.task) {
    case PeerTask::kOpen:
      answer->result = Gpu().cuIpcOpenMemHandle(&peered->address, request.memory,
                                                CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
      peered->bytes = request.bytes;
      peered->handle = 0;
      if (answer->result == CUDA_SUCCESS) answer->value = FirstByte(peered->address);
      break;
    case PeerTask::kImport:
      answer->result = Import(fd, &peered->handle);
      peered->bytes = request.bytes;
      if (answer->result != CUDA_SUCCESS) break;
      peered->address = MapAnywhere(peered->handle, request.bytes);
      answer->value = FirstByte(peered->address);
      break;
    case PeerTask::kRead:
      answer->value = FirstByte(peered->address + peered->bytes - 1);
      break;
    case PeerTask::kWrite:
      FillNow(peered->address, static_cast<uint8_t>(request.value), peered->bytes);
      break;
    case PeerTask::kClose:
      answer->result = Close(*peered);
      break;
    case PeerTask::kOpenEvent:
      answer->result = Gpu().cuIpcOpenEventHandle(&peered->event, request.event);
      break;
    case PeerTask::kQueryEvent:
      answer->result = Gpu().cuEventQuery(peered->event);
      break;
    case PeerTask::kSynchronizeEvent:
      answer->result = Gpu().cuEventSynchronize(peered->event);
      break;
    case PeerTask::kWaitAndRead: {
      const CUstream stream = NewStream();
      answer->result = Gpu().cuStreamWaitEvent(stream, peered->event, 0);
      unsigned char byte = 0;
      REQUIRE(Gpu().cuMemcpyDtoHAsync(&byte, peered->address, 1, stream) == CUDA_SUCCESS);
      REQUIRE(Gpu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
      answer->value = byte;
      break;
    }
    case PeerTask::kRecordEvent:
      answer->result = Gpu().cuEventRecord(peered->event, nullptr);
      break;
    case PeerTask::kAllocate:
      answer->result = Gpu().cuMemAlloc(&peered->address, request.bytes);
      REQUIRE(answer->result == CUDA_SUCCESS);
      FillNow(peered->address, static_cast<uint8_t>(request.value), request.bytes);
      answer->result = Gpu().cuIpcGetMemHandle(&answer->memory, peered->address);
      break;
    case PeerTask::kCreate: {
      CUmemAllocationProp prop = DeviceMemory();
      prop.requestedHandleTypes = kPosix;
      REQUIRE(Gpu().cuMemCreate(&peered->handle, request.bytes, &prop, 0) == CUDA_SUCCESS);
      peered->address = MapAnywhere(peered->handle, request.bytes);
      peered->bytes = request.bytes;
      FillNow(peered->address, static_cast<uint8_t>(request.value), request.bytes);
      int exported = -1;
      answer->result = Gpu().cuMemExportToShareableHandle(&exported, peered->handle, kPosix, 0);
      return exported;
    }
    case PeerTask::kUsed:
      answer->value = UsedBytes(0);
      break;
    case PeerTask::kEnd:
      break;
  }
  return -1;
}

}  // namespace

bool SendMessage(int socket, const PeerMessage& message, int fd) {
  iovec data{const_cast<PeerMessage*>(&message), sizeof(message)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  if (fd >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    cmsghdr* const part = CMSG_FIRSTHDR(&header);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(part), &fd, sizeof(int));
  }
  return sendmsg(socket, &header, MSG_NOSIGNAL) == ssize_t{sizeof(message)};
}

bool ReceiveMessage(int socket, PeerMessage* message, int* fd) {
  iovec data{message, sizeof(*message)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  *fd = -1;
  if (recvmsg(socket, &header, MSG_CMSG_CLOEXEC) != ssize_t{sizeof(*message)}) return false;
  const cmsghdr* const part = CMSG_FIRSTHDR(&header);
  if (part != nullptr && part->cmsg_type == SCM_RIGHTS) {
    std::memcpy(fd, CMSG_DATA(part), sizeof(int));
  }
  return true;
}

int PeerSocket() {
  const char* const text = std::getenv(kSocketVariable);
  return text == nullptr ? -1 : std::atoi(text);
}

PeerProcess::PeerProcess() {
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
  socket_ = ends[0];
  REQUIRE(fcntl(socket_, F_SETFD, FD_CLOEXEC) == 0);
  REQUIRE(setenv(kSocketVariable, std::to_string(ends[1]).c_str(), 1) == 0);
  char program[] = "/proc/self/exe";
  char filter[] = "[peer]";
  char* arguments[] = {program, filter, nullptr};
  REQUIRE(posix_spawn(&process_, program, nullptr, nullptr, arguments, environ) == 0);
  unsetenv(kSocketVariable);
  close(ends[1]);
}

PeerProcess::~PeerProcess() {
  if (process_ > 0) {
    SendMessage(socket_, {}, -1);
    Wait();
  }
  close(socket_);
}

PeerMessage PeerProcess::Ask(const PeerMessage& request, int fd, int* answered_fd) {
  REQUIRE(SendMessage(socket_, request, fd));
  PeerMessage answer;
  int received = -1;
  REQUIRE(ReceiveMessage(socket_, &answer, &received));
  if (answered_fd != nullptr) {
    *answered_fd = received;
  } else if (received >= 0) {
    close(received);
  }
  return answer;
}

void PeerProcess::Kill() {
  kill(process_, SIGKILL);
  Wait();
}

void PeerProcess::Wait() {
  int status = 0;
  waitpid(process_, &status, 0);
  process_ = -1;
}

TEST_CASE("what a peer does for the tests", "[.][peer]") {
  const int socket = PeerSocket();
  REQUIRE(socket >= 0);
  Machine machine;
  Peered peered;
  PeerMessage request;
  int fd = -1;
  while (ReceiveMessage(socket, &request, &fd) && request.task != PeerTask::kEnd) {
    PeerMessage answer;
    const int answer_fd = Serve(request, fd, &peered, &answer);
    if (fd >= 0) close(fd);
    REQUIRE(SendMessage(socket, answer, answer_fd));
    if (answer_fd >= 0) close(answer_fd);
  }
}

}  // namespace weir::sim
