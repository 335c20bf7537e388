// Another process with a simulated device of its own: this test program started again, as its
// hidden test case "[peer]". The two talk in requests and answers over a socket.
#ifndef WEIR_TESTS_SIMCUDA_IPC_PEER_H_
#define WEIR_TESTS_SIMCUDA_IPC_PEER_H_

#include <cuda.h>
#include <sys/types.h>

#include <cstdint>

namespace weir::sim {

enum class PeerTask : int {
  kEnd,         // ends the process; no answer
  kOpen,        // memory: opens the handle; answers with its first byte
  kImport,      // fd: imports and maps it; answers with its first byte
  kRead,        // answers with the first byte of what was opened or imported last
  kWrite,       // writes `value` over all of it
  kClose,       // closes or unmaps it
  kOpenEvent,   // event
  kQueryEvent,  // of the event opened last
  kSynchronizeEvent,
  kWaitAndRead,  // has a stream wait for the event, then copies the first byte on it
  kRecordEvent,
  kAllocate,  // classic memory filled with `value`; answers with its handle
  kCreate,    // a shareable handle filled with `value`; answers with its descriptor
  kUsed,      // answers with the bytes of its device that are in use
};

// Sent both ways. A descriptor travels beside it.
struct PeerMessage {
  PeerTask task = PeerTask::kEnd;
  CUresult result = CUDA_SUCCESS;
  uint64_t bytes = 0;
  uint64_t value = 0;
  CUipcMemHandle memory{};
  CUipcEventHandle event{};
};

bool SendMessage(int socket, const PeerMessage& message, int fd);
// fd: the descriptor that came with it, -1 if none did.
bool ReceiveMessage(int socket, PeerMessage* message, int* fd);

// The socket of the process that this one was started as a peer of; -1 if it is none.
int PeerSocket();

class PeerProcess {
 public:
  PeerProcess();
  ~PeerProcess();  // ends it
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  // Sends the request and waits for the answer.
  PeerMessage Ask(const PeerMessage& request, int fd = -1, int* answered_fd = nullptr);
  PeerMessage Ask(PeerTask task) { return Ask(PeerMessage{.task = task}); }
  // Ends it without a chance to tidy up.
  void Kill();

 private:
  void Wait();

  int socket_ = -1;
  pid_t process_ = -1;
};

}  // namespace weir::sim

#endif  // WEIR_TESTS_SIMCUDA_IPC_PEER_H_
