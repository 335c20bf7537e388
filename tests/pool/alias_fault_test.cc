// Memory at several addresses when driver calls fail: stitching, replay and shared boundaries. A
// change is either completed or undone: blocks in use keep their contents, the request succeeds
// when it is made again, and at the end nothing is lost. Where undoing fails as well, memory may be
// lost, but none is handed out broken.
#include <string>
#include <string_view>
#include <vector>

#include "tests/pool/capture_fixture.h"
#include "tests/pool/fault_sweep.h"
#include "tests/pool/preset.h"

namespace weir {
namespace {

using test::CaptureFixture;
using test::FaultPoint;
using test::OptionsFrom;

// A program whose blocks are marked all over and looked at before each free and after each failure.
class Program {
 public:
  // nothing fails if point == nullptr
  Program(const char* conf, FaultPoint* point)
      : f_(test::Device(32 * kMiB), OptionsFrom(conf)),
        point_(point),
        stream_(f_.NewStream()),
        other_(f_.NewStream()) {}

  CaptureFixture& f() { return f_; }
  CUstream stream() const { return stream_; }
  CUstream other() const { return other_; }
  void Arm() {
    if (point_ != nullptr) point_->Arm();
  }

  // 0 if it failed and calls fail for ever.
  uint64_t Allocate(uint64_t bytes, CUstream stream) {
    uint64_t at = Try(bytes, stream);
    if (at == 0 && !CallsGoOnFailing()) at = TryAgain(bytes, stream);
    RequireConsistent();
    if (at == 0) return 0;
    for (const Block& block : live_)
      REQUIRE((at + bytes <= block.at || block.at + block.bytes <= at));
    live_.push_back({at, bytes, stream, ++last_mark_});
    Mark(live_.back());
    return at;
  }
  void Free(uint64_t at) {
    for (size_t i = 0; i < live_.size(); ++i) {
      if (live_[i].at != at) continue;
      const Block block = live_[i];
      live_.erase(live_.begin() + static_cast<long>(i));
      Look(block);
      if (!f_.heap().FreeAsync(at, block.stream).ok()) f_.Free(at);
    }
  }
  void FreeAll() {
    while (!live_.empty()) Free(live_.back().at);
  }
  // Large requests that leave nothing behind but the same history each time.
  void Prelude() {
    for (int i = 0; i < 256; ++i) {
      HeapError error;
      const uint64_t at = f_.heap().Allocate(300 * kKiB, kBlockAlignment, stream_, &error);
      if (at != 0 && !f_.heap().FreeAsync(at, stream_).ok()) f_.Free(at);
    }
  }
  void Merge() {
    weir_compact_options_t options{};
    options.merge = 1;
    options.keep_bytes = SIZE_MAX;
    weir_compact_result_t result{};
    f_.heap().Compact(options, &result).ok();
    RequireConsistent();
  }
  void GiveBack() {
    f_.heap().EmptyCache().ok();
    RequireConsistent();
  }
  void RequireContents() {
    for (const Block& block : live_) Look(block);
    f_.RequireNoRaces();
    REQUIRE(mismatches_ == 0);
  }
  void RequireConsistent() {
    f_.RequireValid();
    const weir_stats_t stats = f_.Stats();
    uint64_t requested = 0;
    for (const Block& block : live_) requested += block.bytes;
    // What was just handed out is not in live_ yet.
    REQUIRE(stats.requested_bytes >= requested);
    REQUIRE(stats.allocations >= live_.size());
    REQUIRE(stats.reserved_bytes == sim::UsedBytes(0));
  }

  // After the fault everything works again, or, if calls failed for ever, what is left of it.
  void End() {
    const bool all_is_left = !CallsGoOnFailing();
    if (point_ != nullptr) point_->Clear();
    RequireContents();
    FreeAll();
    REQUIRE(f_.Stats().requested_bytes == 0);
    REQUIRE(f_.Stats().allocations == 0);
    REQUIRE(f_.heap().EmptyCache().ok());
    RequireConsistent();
    if (all_is_left) f_.RequireAllIsGivenBack();
    // Whatever is handed out now is mapped once: a write would fault, or change another block.
    for (int i = 0; i < 16; ++i) {
      const uint64_t at = Try(2 * kMiB, i % 2 == 0 ? stream_ : other_);
      REQUIRE((at != 0 || !all_is_left));
      if (at == 0) continue;
      live_.push_back({at, 2 * kMiB, i % 2 == 0 ? stream_ : other_, ++last_mark_});
      Mark(live_.back());
    }
    RequireContents();
    FreeAll();
    GiveBack();
    RequireContents();
  }

 private:
  struct Block {
    uint64_t at, bytes;
    CUstream stream;
    uint64_t mark;
  };

  bool CallsGoOnFailing() const { return point_ != nullptr && point_->goes_on(); }

  uint64_t Try(uint64_t bytes, CUstream stream) {
    const weir_stats_t before = f_.Stats();
    HeapError error;
    const uint64_t at = f_.heap().Allocate(bytes, kBlockAlignment, stream, &error);
    if (at != 0) return at;
    REQUIRE_FALSE(error.text.empty());
    const weir_stats_t after = f_.Stats();
    REQUIRE(after.requested_bytes == before.requested_bytes);
    REQUIRE(after.allocated_bytes == before.allocated_bytes);
    REQUIRE(after.allocations == before.allocations);
    return 0;
  }
  // Segments of cuMemAlloc cannot be put together: with mapping switched off it may fail.
  uint64_t TryAgain(uint64_t bytes, CUstream stream) {
    RequireConsistent();
    REQUIRE(point_ != nullptr);
    point_->Clear();
    RequireContents();
    const uint64_t at = Try(bytes, stream);
    REQUIRE((at != 0 || !f_.heap().driver().has_vmm()));
    return at;
  }

  static constexpr uint64_t kStep = 128 * kKiB;
  void Mark(const Block& block) {
    REQUIRE(sim::Launch(block.stream, "mark", {{block.at, block.bytes, true}},
                        [block](sim::KernelMemory& memory) {
                          for (uint64_t i = 0; i + 8 <= block.bytes; i += kStep) {
                            const uint64_t value = block.mark + i;
                            memory.Write(block.at + i, &value, 8);
                          }
                        }) == CUDA_SUCCESS);
  }
  void Look(const Block& block) {
    REQUIRE(sim::Launch(block.stream, "look", {{block.at, block.bytes, false}},
                        [block, this](sim::KernelMemory& memory) {
                          for (uint64_t i = 0; i + 8 <= block.bytes; i += kStep) {
                            uint64_t value = 0;
                            memory.Read(block.at + i, &value, 8);
                            if (value != block.mark + i) ++mismatches_;
                          }
                        }) == CUDA_SUCCESS);
  }

  CaptureFixture f_;
  FaultPoint* const point_;
  const CUstream stream_, other_;
  std::vector<Block> live_;
  uint64_t last_mark_ = 0;
  int mismatches_ = 0;
};

// What a run has to show that it covers.
struct Covered {
  uint64_t stitched_bytes = 0;
  uint64_t calls_of_replay = 0;  // that change the mapping
  uint64_t unmaps = 0;           // by a miss after it: of what it takes, of addresses given up
  uint64_t unmaps_to_merge = 0;  // further addresses, which merges do without
};

uint64_t MappingCalls() {
  uint64_t calls = 0;
  for (const char* entry : {"cuMemCreate", "cuMemMap", "cuMemUnmap", "cuMemRelease"})
    calls += sim::CallCount(entry);
  return calls;
}

// Blocks, then in the place of every second of them a longer one.
void Period(Program& p) {
  p.Prelude();
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(p.Allocate(4 * kMiB, p.stream()));
  for (const size_t i : {0, 2, 4}) p.Free(blocks[i]);
  const uint64_t longer = p.Allocate(9 * kMiB + 600 * kKiB, p.stream());
  const uint64_t more = p.Allocate(5 * kMiB + 300 * kKiB, p.stream());
  for (const size_t i : {1, 3, 5}) p.Free(blocks[i]);
  p.Free(longer);
  p.Free(more);
}

// The first period is not known yet. The second finds no memory where it was, and so is stitched;
// the third finds all addresses of the second. Then another stream needs memory at several
// addresses, further addresses are given up as far as alias_bound says, and all is given back.
Covered StitchAndReplay(const char* conf, FaultPoint* point) {
  Program p(conf, point);
  Covered covered;
  const uint64_t kept = p.Allocate(2 * kMiB, p.stream());
  Period(p);
  p.GiveBack();
  sim::ResetCallCounts();
  p.Arm();
  Period(p);
  const uint64_t calls = MappingCalls();
  Period(p);
  covered.calls_of_replay = MappingCalls() - calls;
  const uint64_t unmaps = sim::CallCount("cuMemUnmap");
  p.Allocate(3 * kMiB, p.other());
  covered.unmaps = sim::CallCount("cuMemUnmap") - unmaps;
  p.Merge();
  covered.unmaps_to_merge = sim::CallCount("cuMemUnmap") - unmaps - covered.unmaps;
  p.Allocate(9 * kMiB, p.other());
  p.Allocate(6 * kMiB, p.stream());
  p.GiveBack();
  p.Free(kept);
  covered.stitched_bytes = p.f().Stats().stitched_bytes;
  p.End();
  return covered;
}

// A full device whose granules are used in part. Blocks that only sharing makes room for; they end
// before their hosts and after them; their memory then serves others, and is given back.
uint64_t ShareBoundaries(const char* conf, FaultPoint* point) {
  Program p(conf, point);
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(p.Allocate(3 * kMiB, p.stream()));
  p.Arm();
  // A free tail of 1 MiB, two idle granules beside the one that was never made, a free head.
  p.Free(blocks[1]);
  p.Free(blocks[4]);
  uint64_t across = p.Allocate(7 * kMiB + 512 * kKiB, p.stream());
  p.Allocate(400 * kKiB, p.stream());  // in what is left of the head
  p.Free(across);
  across = p.Allocate(7 * kMiB + 512 * kKiB, p.stream());
  p.Free(blocks[0]);  // the block of the host, while its end is lent
  p.GiveBack();
  p.Free(across);
  p.Free(blocks[7]);
  across = p.Allocate(13 * kMiB, p.stream());
  p.Free(blocks[6]);
  p.Free(blocks[8]);
  p.Free(across);  // no block is left in the memory that it was lent
  p.Allocate(7 * kMiB, p.other());
  p.GiveBack();
  const uint64_t shared = p.f().Stats().shared_blocks;
  p.End();
  return shared;
}

constexpr const char* kStitch = "stitch:on,max_handle:2MiB";
const std::vector<std::string> kMappingEntries{"cuMemCreate", "cuMemRelease", "cuMemMap",
                                               "cuMemUnmap", "cuMemSetAccess"};
constexpr const char* kFewAliases = "stitch:on,max_handle:2MiB,alias_bound:0";

}  // namespace

TEST_CASE("stitching, replay and dropped addresses: whichever driver call fails, nothing is lost",
          "[placement][fault]") {
  const char* conf = GENERATE(values<const char*>({kStitch, kFewAliases, "mode:tight"}));
  INFO(conf);
  const Covered covered = StitchAndReplay(conf, nullptr);
  REQUIRE(covered.stitched_bytes >= 8 * kMiB);
  REQUIRE(covered.calls_of_replay == 0);
  REQUIRE((covered.unmaps_to_merge > 0) == (std::string_view(conf) == "mode:tight"));
  if (conf == kFewAliases) REQUIRE(covered.unmaps > StitchAndReplay(kStitch, nullptr).unmaps);
  // Each run fills the tables of two streams' contexts, which takes most of its time.
  std::vector<CUresult> codes{CUDA_ERROR_OUT_OF_MEMORY};
  if (conf == kStitch) codes.push_back(CUDA_ERROR_UNKNOWN);
  for (const CUresult code : codes) {
    const int reached =
        test::ForEachFault(test::HeapEntries(), /*then=*/"", code,
                           [&](FaultPoint& point) { StitchAndReplay(conf, &point); });
    REQUIRE(reached > 50);
  }
}

TEST_CASE("when stitching can neither be done nor undone, no memory is handed out broken",
          "[placement][fault]") {
  const char* conf = GENERATE(values<const char*>({kStitch, kFewAliases}));
  const std::vector<std::string> unmap{"cuMemUnmap"};
  for (const std::string& then : conf == kStitch ? kMappingEntries : unmap) {
    INFO(conf << ", then " << then);
    const int reached =
        test::ForEachFault(kMappingEntries, then, CUDA_ERROR_OUT_OF_MEMORY,
                           [&](FaultPoint& point) { StitchAndReplay(conf, &point); });
    REQUIRE(reached > 20);
  }
}

TEST_CASE("shared boundaries: whichever driver call fails, nothing is lost", "[placement][fault]") {
  const char* conf = GENERATE(values<const char*>({"mode:serving", "mode:tight,boundary:on"}));
  INFO(conf);
  REQUIRE(ShareBoundaries(conf, nullptr) >= 2);
  for (const CUresult code : {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN}) {
    const int reached =
        test::ForEachFault(test::HeapEntries(), /*then=*/"", code,
                           [&](FaultPoint& point) { ShareBoundaries(conf, &point); });
    REQUIRE(reached > 50);
  }
}

TEST_CASE("when sharing can neither be done nor undone, no memory is handed out broken",
          "[placement][fault]") {
  const CUresult code = GENERATE(CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN);
  for (const std::string& then : kMappingEntries) {
    INFO("then " << then);
    const int reached = test::ForEachFault(kMappingEntries, then, code, [](FaultPoint& point) {
      ShareBoundaries("mode:serving", &point);
    });
    REQUIRE(reached > 20);
  }
}

}  // namespace weir
