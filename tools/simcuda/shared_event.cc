#include "tools/simcuda/shared_event.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <vector>

#include "tools/simcuda/shared_object.h"

namespace weir::sim {
namespace {

constexpr char kMagic[8] = "weir-ev";
constexpr uint64_t kPage = 4096;
constexpr uint64_t kPlaceBytes = 64;
constexpr uint64_t kPlaces = 1 << 15;
static_assert(sizeof(SharedEvent::Place) <= kPlaceBytes);
static_assert(
    std::atomic<uint64_t>::is_always_lock_free);  // or it would not work between processes

SharedEvent::Place* PlaceAt(void* memory, uint64_t offset) {
  return reinterpret_cast<SharedEvent::Place*>(static_cast<std::byte*>(memory) + offset);
}

// The events of this process. Made when the first one is, and again in a child after a fork: the
// board that it inherits is its parent's. Lives as long as the process.
struct Board {
  int process = 0;
  int file = -1;
  void* memory = nullptr;
  std::vector<uint64_t> free;
  uint64_t used = 0;  // places that were ever taken

  bool Ready() {
    if (process == getpid()) return true;
    const int made = memfd_create("weir-simulated-events", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (made < 0) return false;
    void* mapped = MAP_FAILED;
    if (ftruncate(made, kPlaces * kPlaceBytes) == 0 && SealFile(made)) {
      mapped = mmap(nullptr, kPlaces * kPlaceBytes, PROT_READ | PROT_WRITE, MAP_SHARED, made, 0);
    }
    if (mapped == MAP_FAILED) {
      close(made);
      return false;
    }
    *this = {getpid(), made, mapped, {}, 0};
    return true;
  }

  std::optional<uint64_t> Take() {
    if (!free.empty()) {
      const uint64_t index = free.back();
      free.pop_back();
      return index;
    }
    return used < kPlaces ? std::optional(used++) : std::nullopt;
  }
};

Board& TheBoard() {
  static Board* const board = new Board;
  return *board;
}

}  // namespace

std::shared_ptr<SharedEvent> SharedEvent::Create() {
  Board& board = TheBoard();
  if (!board.Ready()) return nullptr;
  const std::optional<uint64_t> index = board.Take();
  if (!index.has_value()) return nullptr;
  Place* const place = PlaceAt(board.memory, *index * kPlaceBytes);
  place->recorded = 0;
  place->completed = 0;
  Name name{};
  std::memcpy(name.magic, kMagic, sizeof(kMagic));
  name.process = board.process;
  name.file = board.file;
  name.file_id = FileId(board.file);
  name.index = *index;
  name.life = ++place->life;
  return std::shared_ptr<SharedEvent>(new SharedEvent(name, place, nullptr));
}

CUresult SharedEvent::Open(const CUipcEventHandle& handle, std::shared_ptr<SharedEvent>* event) {
  Name name;
  std::memcpy(&name, &handle, sizeof(name));
  if (std::memcmp(name.magic, kMagic, sizeof(kMagic)) != 0 || name.index >= kPlaces) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (name.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  const int file = OpenOfProcess(name.process, name.file);
  if (file < 0) return CUDA_ERROR_INVALID_VALUE;
  struct stat status;
  const bool whole = fstat(file, &status) == 0 && FileId(file) == name.file_id &&
                     status.st_size == off_t{kPlaces * kPlaceBytes};
  const uint64_t offset = name.index * kPlaceBytes;
  void* page = MAP_FAILED;
  if (whole) {
    page = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file,
                static_cast<off_t>(offset / kPage * kPage));
  }
  close(file);
  if (page == MAP_FAILED) return CUDA_ERROR_INVALID_VALUE;
  Place* const place = PlaceAt(page, offset % kPage);
  std::shared_ptr<SharedEvent> opened(new SharedEvent(name, place, page));
  if (place->life != name.life) return CUDA_ERROR_INVALID_VALUE;  // destroyed meanwhile
  *event = std::move(opened);
  return CUDA_SUCCESS;
}

SharedEvent::~SharedEvent() {
  if (mapping_ != nullptr) {
    munmap(mapping_, kPage);
    return;
  }
  Board& board = TheBoard();
  if (board.process != name_.process || board.process != getpid()) return;  // the parent's, forked
  ++place_->life;
  board.free.push_back(name_.index);
}

CUipcEventHandle SharedEvent::handle() const {
  CUipcEventHandle handle{};
  std::memcpy(&handle, &name_, sizeof(name_));
  return handle;
}

uint64_t SharedEvent::Record() { return ++place_->recorded; }

void SharedEvent::Complete(uint64_t record) {
  uint64_t completed = place_->completed;
  while (completed < record && !place_->completed.compare_exchange_weak(completed, record)) {
  }
}

uint64_t SharedEvent::last_record() const { return place_->recorded; }

bool SharedEvent::IsComplete() const {
  return place_->life != name_.life || place_->completed >= place_->recorded;
}

}  // namespace weir::sim
