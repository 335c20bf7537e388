#include "tools/replay/verifier.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "allocator/base/bytes.h"

namespace weir::replay {
namespace {

// One round of a well-mixed hash (Stafford's variant 13).
uint64_t Mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

}  // namespace

void Verifier::Clear() {
  differences_ = 0;
  first_event_ = UINT64_MAX;
  first_.clear();
}

Verifier::Pieces Verifier::PiecesOf(const Block& block) {
  Pieces pieces;
  if (block.bytes <= 2 * kPieceBytes) {
    if (block.bytes > 0) pieces.piece[pieces.count++] = {0, block.bytes};
    return pieces;
  }
  pieces.piece[pieces.count++] = {0, kPieceBytes};
  // Evenly spread, each moved down to a whole kSampleBytes of the address.
  uint64_t last = 0;
  for (uint64_t i = 1; i <= kSamples; ++i) {
    const uint64_t wanted = block.address + block.bytes / (kSamples + 1) * i;
    const uint64_t address = AlignDown(wanted, kSampleBytes);
    if (address < block.address + last + kPieceBytes) continue;
    if (address + 2 * kPieceBytes > block.address + block.bytes) break;
    last = address - block.address;
    pieces.piece[pieces.count++] = {last, kPieceBytes};
  }
  pieces.piece[pieces.count++] = {block.bytes - kPieceBytes, kPieceBytes};
  return pieces;
}

void Verifier::Pattern(uint64_t pass, const Block& block, const Piece& piece, unsigned char* to) {
  const uint64_t seed = Mix(block.number * 0x9e3779b97f4a7c15 + pass);
  uint64_t word = 0;
  for (uint64_t i = 0; i < piece.bytes; ++i) {
    const uint64_t offset = piece.offset + i;
    if (i == 0 || offset % 8 == 0) word = Mix(seed + offset / 8);
    to[i] = static_cast<unsigned char>(word >> (8 * (offset % 8)));
  }
}

bool Verifier::Launch(const Block& block, CUstream stream, uint64_t event, const char* why,
                      bool write) {
  const Pieces pieces = PiecesOf(block);
  if (pieces.count == 0) return true;
  std::vector<sim::Access> accesses;
  accesses.reserve(static_cast<size_t>(pieces.count));
  for (int i = 0; i < pieces.count; ++i) {
    accesses.push_back({block.address + pieces.piece[i].offset, pieces.piece[i].bytes, write});
  }
  std::string label = absl::StrCat(why, " of block ", block.number, " (event ", event, ")");
  const uint64_t pass = pass_;
  if (write) {
    return driver_.Launch(block.device, stream, label, std::move(accesses),
                          [block, pass, pieces](sim::KernelMemory& memory) {
                            unsigned char bytes[2 * kPieceBytes];
                            for (int i = 0; i < pieces.count; ++i) {
                              const Piece& piece = pieces.piece[i];
                              Pattern(pass, block, piece, bytes);
                              memory.Write(block.address + piece.offset, bytes, piece.bytes);
                            }
                          });
  }
  return driver_.Launch(block.device, stream, label, std::move(accesses),
                        [this, block, pass, event, why](sim::KernelMemory& memory) {
                          Compare(memory, block, pass, event, why);
                        });
}

bool Verifier::Write(const Block& block, CUstream stream, uint64_t event) {
  return Launch(block, stream, event, "write", /*write=*/true);
}

bool Verifier::Check(const Block& block, CUstream stream, uint64_t event, const char* why) {
  return Launch(block, stream, event, why, /*write=*/false);
}

void Verifier::Compare(sim::KernelMemory& memory, const Block& block, uint64_t pass, uint64_t event,
                       const char* why) {
  const Pieces pieces = PiecesOf(block);
  unsigned char expected[2 * kPieceBytes], found[2 * kPieceBytes];
  for (int i = 0; i < pieces.count; ++i) {
    const Piece& piece = pieces.piece[i];
    Pattern(pass, block, piece, expected);
    if (memory.Read(block.address + piece.offset, found, piece.bytes) &&
        std::memcmp(expected, found, piece.bytes) == 0) {
      continue;
    }
    ++differences_;
    if (event < first_event_) {
      first_event_ = event;
      first_ = absl::StrCat(why, " of block ", block.number, " (", block.bytes,
                            " bytes): the contents at offset ", piece.offset,
                            " are not what was written");
    }
    return;
  }
}

}  // namespace weir::replay
