// The happens-before checker: remembers, for each physical byte, the last write and the reads
// since, and reports an access that is not ordered after a conflicting one.
//
// Works on physical bytes (store, offset), so aliases are one memory, and recycled addresses are
// not. Accesses are compared when they run; whichever of two unordered ones runs second is
// reported, so a missing order is found whatever the schedule was. Protected by the simulator lock.
#ifndef WEIR_TOOLS_SIMCUDA_RACE_CHECKER_H_
#define WEIR_TOOLS_SIMCUDA_RACE_CHECKER_H_

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "tools/simcuda/operation.h"
#include "tools/simcuda/stream.h"

namespace weir::sim {

class RaceChecker {
 public:
  // One access of an operation that runs now. `address` is where the first span begins.
  void Check(const std::shared_ptr<OperationRecord>& operation, CUdeviceptr address,
             const PhysicalSpan* spans, size_t count, bool write);
  // The host takes the memory away now. Reports work that used it through these addresses and that
  // the host's clock does not cover.
  void CheckHostRelease(std::string_view entry, CUdeviceptr address, const PhysicalSpan* spans,
                        size_t count, const VectorClock& host);
  void ForgetStore(uint64_t store) { stores_.erase(store); }
  // Bounds the memory of long runs: forgets uses that everything still to come is ordered after.
  // Cheap to call often; sweeps only once the history may have doubled.
  void ForgetCovered(const std::shared_ptr<const VectorClock>& floor);

  void AddReport(Report report);
  const std::vector<Report>& reports() const { return reports_; }
  uint64_t report_count() const { return report_count_; }  // those not kept included
  void ClearReports();

 private:
  struct Use {
    std::shared_ptr<OperationRecord> operation;
    CUdeviceptr address;  // of the cell's first byte, as the operation saw it
  };
  static constexpr uint64_t kMinSpansUntilSweep = 1 << 17;

  struct Cell {
    uint64_t end;
    Use writer;                           // null: not written yet
    absl::InlinedVector<Use, 1> readers;  // since that write, none ordered after another
  };
  using Shadow = absl::btree_map<uint64_t, std::unique_ptr<Cell>>;  // by first offset; disjoint

  void CheckSpan(Shadow& shadow, const Use& use, uint64_t begin, uint64_t end, bool write);
  // Splits the cell that contains `offset` so that one begins there.
  static void SplitAt(Shadow& shadow, uint64_t offset);
  void Compare(const Cell& cell, uint64_t begin, const Use& use, bool write);
  void ReportRace(const Use& earlier, bool earlier_wrote, const Use& later, bool write,
                  uint64_t bytes);

  absl::flat_hash_map<uint64_t, Shadow> stores_;
  std::shared_ptr<const VectorClock> swept_floor_;
  uint64_t spans_since_sweep_ = 0;
  uint64_t spans_until_sweep_ = kMinSpansUntilSweep;
  std::vector<const OperationRecord*> reported_;  // against the operation being checked
  const OperationRecord* reported_for_ = nullptr;
  std::vector<Report> reports_;  // the first kMaxKept
  uint64_t report_count_ = 0;
};

}  // namespace weir::sim

#endif  // WEIR_TOOLS_SIMCUDA_RACE_CHECKER_H_
