// Verifier: writes each block with its own pattern and checks it again, by work on streams only, so
// that no synchronization hides a mistake of the allocator. Touched are both ends of the block and
// up to kSamples places between, at multiples of kSampleBytes, so that of a simulated device's
// sparse memory at most one page in sixteen is ever used.
//
// What is found comes to light when the work runs: call Finish at the end. Not thread-safe; the
// bodies of the operations run one at a time.
#ifndef WEIR_TOOLS_REPLAY_VERIFIER_H_
#define WEIR_TOOLS_REPLAY_VERIFIER_H_

#include <cstdint>
#include <string>

#include "tools/replay/driver_calls.h"

namespace weir::replay {

class Verifier {
 public:
  struct Block {
    int device;
    uint64_t number;
    uint64_t address;
    uint64_t bytes;
  };

  explicit Verifier(DriverCalls& driver) : driver_(driver) {}

  // Blocks of another pass get other patterns.
  void BeginPass(uint64_t pass) { pass_ = pass; }

  // Queues the work on the stream. False if the driver refuses it (its error()).
  bool Write(const Block& block, CUstream stream, uint64_t event);
  // `event` is what a difference is reported with.
  bool Check(const Block& block, CUstream stream, uint64_t event, const char* why);

  uint64_t differences() const { return differences_; }
  uint64_t first_event() const { return first_event_; }
  // The first difference in words.
  const std::string& first() const { return first_; }
  void Clear();

 private:
  static constexpr int kSamples = 4;
  static constexpr uint64_t kPieceBytes = 64;
  static constexpr uint64_t kSampleBytes = 64 << 10;
  struct Piece {
    uint64_t offset;
    uint64_t bytes;
  };
  struct Pieces {
    Piece piece[kSamples + 2];
    int count = 0;
  };

  static Pieces PiecesOf(const Block& block);
  static void Pattern(uint64_t pass, const Block& block, const Piece& piece, unsigned char* to);
  bool Launch(const Block& block, CUstream stream, uint64_t event, const char* why, bool write);
  void Compare(sim::KernelMemory& memory, const Block& block, uint64_t pass, uint64_t event,
               const char* why);

  DriverCalls& driver_;
  uint64_t pass_ = 0;
  uint64_t differences_ = 0;
  uint64_t first_event_ = UINT64_MAX;
  std::string first_;
};

}  // namespace weir::replay

#endif  // WEIR_TOOLS_REPLAY_VERIFIER_H_
