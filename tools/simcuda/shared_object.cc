#include "tools/simcuda/shared_object.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace weir::sim {
namespace {

constexpr uint64_t kPage = 4096;
constexpr char kMagic[16] = "weir-simcuda-ob";

struct Header {
  char magic[16];
  uint64_t bytes;
  int32_t device;
  uint32_t handle_types;
  uint32_t rdma_capable;
  uint32_t extents;
};

bool ReadAll(int file, void* to, uint64_t bytes, uint64_t position) {
  return pread(file, to, bytes, static_cast<off_t>(position)) == static_cast<ssize_t>(bytes);
}

// 0 if it is no regular file that is sealed against shrinking: such a file may be truncated under
// who maps it.
uint64_t SealedBytes(int file) {
  struct stat status;
  if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) return 0;
  const int seals = fcntl(file, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 ? static_cast<uint64_t>(status.st_size) : 0;
}

struct flock FirstByte(short type, uint64_t position) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(position);
  lock.l_len = 1;
  return lock;
}

int OpenAnew(const std::string& path) { return open(path.c_str(), O_RDWR | O_CLOEXEC); }

}  // namespace

bool SealFile(int file) { return fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK) == 0; }

uint64_t WriteRecord(int file, const SharedObject& object) {
  struct stat status;
  if (fstat(file, &status) != 0) return 0;
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.bytes = object.bytes;
  header.device = object.device;
  header.handle_types = object.handle_types;
  header.rdma_capable = object.rdma_capable ? 1 : 0;
  header.extents = static_cast<uint32_t>(object.extents.size());
  const uint64_t listed = object.extents.size() * sizeof(SharedObject::Extent);
  const uint64_t position = static_cast<uint64_t>(status.st_size);
  const uint64_t end = position + (sizeof(header) + listed + kPage - 1) / kPage * kPage;
  const off_t at = static_cast<off_t>(position);
  const off_t behind = at + static_cast<off_t>(sizeof(header));
  const bool written =
      ftruncate(file, static_cast<off_t>(end)) == 0 &&
      pwrite(file, object.extents.data(), listed, behind) == static_cast<ssize_t>(listed) &&
      pwrite(file, &header, sizeof(header), at) == ssize_t{sizeof(header)};
  return written ? position : 0;
}

std::optional<SharedObject> ReadRecord(int file, uint64_t position) {
  const uint64_t size = SealedBytes(file);
  Header header;
  if (position >= size || size - position < sizeof(header) ||
      !ReadAll(file, &header, sizeof(header), position) ||
      std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) {
    return std::nullopt;
  }
  SharedObject object;
  object.bytes = header.bytes;
  object.device = header.device;
  object.handle_types = header.handle_types;
  object.rdma_capable = header.rdma_capable != 0;
  const uint64_t room = (size - position - sizeof(header)) / sizeof(SharedObject::Extent);
  if (header.extents > room) return std::nullopt;
  object.extents.resize(header.extents);
  if (!ReadAll(file, object.extents.data(), object.extents.size() * sizeof(SharedObject::Extent),
               position + sizeof(header))) {
    return std::nullopt;
  }
  uint64_t total = 0;
  for (const SharedObject::Extent& extent : object.extents) {
    if (extent.bytes == 0 || extent.offset % kPage != 0 || extent.bytes % kPage != 0 ||
        extent.offset > size || extent.bytes > size - extent.offset) {
      return std::nullopt;
    }
    total += extent.bytes;
    if (total > size) return std::nullopt;
  }
  return total == object.bytes && total > 0 ? std::optional(std::move(object)) : std::nullopt;
}

void EraseRecord(int file, uint64_t position) {
  const Header nothing{};
  // If this fails the record still says where the object was, which is then anybody's: the same as
  // for a handle that is used after its memory was freed.
  [[maybe_unused]] const ssize_t written =
      pwrite(file, &nothing, sizeof(nothing), static_cast<off_t>(position));
  fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(position), kPage);
}

int OpenHolding(int file, uint64_t position) {
  const int opened = OpenAnew("/proc/self/fd/" + std::to_string(file));
  if (opened < 0) return -1;
  struct flock hold = FirstByte(F_RDLCK, position);
  if (fcntl(opened, F_OFD_SETLK, &hold) != 0 ||
      lseek(opened, static_cast<off_t>(position), SEEK_SET) < 0) {
    close(opened);
    return -1;
  }
  return opened;
}

bool HeldElsewhere(int file, uint64_t position) {
  struct flock wanted = FirstByte(F_WRLCK, position);
  return fcntl(file, F_OFD_GETLK, &wanted) == 0 && wanted.l_type != F_UNLCK;
}

std::optional<uint64_t> PositionOf(int file) {
  const off_t at = lseek(file, 0, SEEK_CUR);
  return at < 0 ? std::nullopt : std::optional(static_cast<uint64_t>(at));
}

bool SameFile(int one, int other) {
  struct stat first;
  struct stat second;
  return fstat(one, &first) == 0 && fstat(other, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

uint64_t FileId(int file) {
  struct stat status;
  return fstat(file, &status) == 0 ? static_cast<uint64_t>(status.st_ino) : 0;
}

int OpenOfProcess(int process, int file) {
  if (process <= 0 || file < 0) return -1;
  return OpenAnew("/proc/" + std::to_string(process) + "/fd/" + std::to_string(file));
}

}  // namespace weir::sim
