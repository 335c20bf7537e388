// Memory that one process exports and another imports (weir/share.h), with descriptors sent over a
// socket. A program of its own: only processes that have not used Weir yet may be forked, so each
// test forks two and uses Weir in these alone.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/capi/in_child.h"
#include "weir/share.h"
#include "weir/weir.h"

namespace weir::test {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kMaxHandles = 64;
using Descriptors = std::array<int, kMaxHandles>;

// What goes over the socket; `exported.count` descriptors travel beside it.
struct Message {
  size_t bytes = 0;  // of the block
  weir_export_t exported = {};
  std::array<uint64_t, kMaxHandles> handle_bytes = {};
};

struct Received {
  Message message;
  Descriptors fds = {};

  int* descriptors() { return fds.data(); }
  void Close() {
    for (size_t i = 0; i < message.exported.count; ++i) close(fds[i]);
  }
};

bool Send(int socket, Message message, const Descriptors& fds) {
  iovec data{&message, sizeof(message)};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxHandles * sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  if (const size_t bytes = message.exported.count * sizeof(int); bytes > 0) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* const part = CMSG_FIRSTHDR(&header);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(part), fds.data(), bytes);
  }
  return sendmsg(socket, &header, MSG_NOSIGNAL) == ssize_t{sizeof(message)};
}

bool Receive(int socket, Received* received) {
  iovec data{&received->message, sizeof(Message)};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxHandles * sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  if (recvmsg(socket, &header, MSG_CMSG_CLOEXEC) != ssize_t{sizeof(Message)}) return false;
  const cmsghdr* const part = CMSG_FIRSTHDR(&header);
  const size_t bytes = received->message.exported.count * sizeof(int);
  if (bytes == 0) return part == nullptr;
  if (part == nullptr || part->cmsg_len != CMSG_LEN(bytes)) return false;
  std::memcpy(received->fds.data(), CMSG_DATA(part), bytes);
  return true;
}

// One side tells the other that it may go on.
bool Tell(int socket) { return Send(socket, {}, {}); }
bool Await(int socket) {
  Received nothing;
  return Receive(socket, &nothing);
}

// Runs both in processes of their own that share a socket; each returns the line that failed, or 0.
template <typename Exporter, typename Importer>
void RunBoth(const char* conf, Exporter exporter, Importer importer) {
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
  std::fflush(nullptr);
  const pid_t other = fork();
  REQUIRE(other >= 0);
  if (other == 0) {
    alarm(120);
    close(ends[0]);
    setenv("WEIR_CONF", conf, 1);
    const int line = importer(ends[1]);
    if (line != 0) std::fprintf(stderr, "importer: line %d; %s\n", line, weir_last_error());
    _exit(line == 0 ? 0 : 1);
  }
  close(ends[1]);
  CHECK(InChild(conf, nullptr, [&] {
          alarm(120);
          return exporter(ends[0]);
        }) == 0);
  close(ends[0]);  // an importer that waits for an exporter that failed ends
  int status = -1;
  REQUIRE(waitpid(other, &status, 0) == other);
  CHECK(status == 0);
}

bool Holds(const void* at, size_t bytes, char value) {
  std::vector<char> data(bytes);
  return weir_memcpy(data.data(), at, bytes) == WEIR_OK &&
         std::count(data.begin(), data.end(), value) == static_cast<ptrdiff_t>(bytes);
}

// Sends the block's descriptors and closes them here.
bool ExportTo(int socket, const void* block, size_t bytes) {
  Message message;
  message.bytes = bytes;
  Descriptors fds = {};
  if (weir_export(block, message.handle_bytes.data(), fds.data(), fds.size(), &message.exported) !=
      WEIR_OK)
    return false;
  const bool is_sent = Send(socket, message, fds);
  for (size_t i = 0; i < message.exported.count; ++i) close(fds[i]);
  return is_sent;
}

// All of the device's memory is free again, here and for Weir.
bool NothingIsHeld() {
  size_t free_bytes = 0, total = 0;
  return weir_empty_cache(0) == WEIR_OK && weir_verify() == WEIR_OK &&
         weir_mem_get_info(0, &free_bytes, &total) == WEIR_OK && free_bytes == total;
}

constexpr char kDefault[] = "device:sim,sim_memory:1GiB";
constexpr char kTight[] = "device:sim,sim_memory:1GiB,mode:tight";

TEST_CASE("what one process writes another reads, in both directions, and each may end first",
          "[share]") {
  const char* const conf = GENERATE(values<const char*>({kDefault, kTight}));
  const size_t bytes = GENERATE(size_t{600}, size_t{300000}, 45 * kMiB);
  INFO(conf << ", " << bytes << " bytes");
  const auto exporter = [bytes](int socket) {
    void* beside = weir_malloc(bytes);
    void* block = weir_malloc(bytes);
    EXPECT_IN_CHILD(beside != nullptr && block != nullptr);
    EXPECT_IN_CHILD(weir_memset(block, 5, bytes) == WEIR_OK);
    EXPECT_IN_CHILD(ExportTo(socket, block, bytes));
    EXPECT_IN_CHILD(Await(socket));  // the other has read, and written
    EXPECT_IN_CHILD(Holds(block, bytes, 9));
    EXPECT_IN_CHILD(weir_free(beside) == WEIR_OK && weir_free(block) == WEIR_OK);
    EXPECT_IN_CHILD(weir_unexport(block) == WEIR_OK);
    EXPECT_IN_CHILD(weir_unexport(block) == WEIR_ERROR_INVALID_ARGUMENT);
    EXPECT_IN_CHILD(weir_empty_cache(0) == WEIR_OK && weir_verify() == WEIR_OK);
    // Memory is not cleared when the handle is only let go: what comes next is other memory.
    void* next = weir_malloc(bytes);
    EXPECT_IN_CHILD(next != nullptr && weir_memset(next, 1, bytes) == WEIR_OK);
    EXPECT_IN_CHILD(Tell(socket));
    EXPECT_IN_CHILD(Await(socket));  // the other has closed it
    EXPECT_IN_CHILD(weir_free(next) == WEIR_OK);
    EXPECT_IN_CHILD(NothingIsHeld());
    return 0;
  };
  const auto importer = [](int socket) {
    Received received;
    EXPECT_IN_CHILD(Receive(socket, &received));
    const Message& message = received.message;
    void* imported = nullptr;
    EXPECT_IN_CHILD(weir_import(0, received.descriptors(), message.handle_bytes.data(),
                                message.exported.count, &imported) == WEIR_OK);
    received.Close();
    char* const block = static_cast<char*>(imported) + message.exported.offset;
    EXPECT_IN_CHILD(Holds(block, message.bytes, 5));
    EXPECT_IN_CHILD(weir_memset(block, 9, message.bytes) == WEIR_OK);
    EXPECT_IN_CHILD(Tell(socket));
    EXPECT_IN_CHILD(Await(socket));  // freed and given back there
    EXPECT_IN_CHILD(Holds(block, message.bytes, 9));
    EXPECT_IN_CHILD(weir_free(block) == WEIR_ERROR_NOT_OWNED);
    EXPECT_IN_CHILD(weir_close_import(imported) == WEIR_OK);
    EXPECT_IN_CHILD(NothingIsHeld());
    EXPECT_IN_CHILD(Tell(socket));
    return 0;
  };
  RunBoth(conf, exporter, importer);
}

TEST_CASE("descriptors hold the memory: it is imported after its exporter has ended", "[share]") {
  const size_t bytes = 5 * kMiB;
  const bool gives_back = GENERATE(true, false);
  const auto exporter = [&](int socket) {
    void* block = weir_malloc(bytes);
    EXPECT_IN_CHILD(block != nullptr && weir_memset(block, 7, bytes) == WEIR_OK);
    EXPECT_IN_CHILD(ExportTo(socket, block, bytes));
    if (!gives_back) return 0;
    EXPECT_IN_CHILD(weir_free(block) == WEIR_OK && weir_unexport(block) == WEIR_OK);
    EXPECT_IN_CHILD(weir_empty_cache(0) == WEIR_OK && weir_verify() == WEIR_OK);
    return 0;
  };
  const auto importer = [](int socket) {
    Received received;
    EXPECT_IN_CHILD(Receive(socket, &received));
    EXPECT_IN_CHILD(!Await(socket));  // nobody has the other end any more
    const Message& message = received.message;
    for (int i = 0; i < 2; ++i) {
      void* imported = nullptr;
      EXPECT_IN_CHILD(weir_import(0, received.descriptors(), message.handle_bytes.data(),
                                  message.exported.count, &imported) == WEIR_OK);
      const char* const block = static_cast<char*>(imported) + message.exported.offset;
      EXPECT_IN_CHILD(Holds(block, message.bytes, 7));
      EXPECT_IN_CHILD(weir_close_import(imported) == WEIR_OK);
    }
    received.Close();
    EXPECT_IN_CHILD(NothingIsHeld());
    return 0;
  };
  RunBoth(kDefault, exporter, importer);
}

}  // namespace
}  // namespace weir::test
