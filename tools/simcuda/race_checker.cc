#include "tools/simcuda/race_checker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weir::sim {
namespace {

constexpr size_t kMaxKept = 1000;

bool Ordered(const OperationRecord& earlier, const OperationRecord& later) {
  return earlier.lane == later.lane || later.clock->Covers(earlier.lane, earlier.position);
}

std::string Describe(const OperationRecord& operation) {
  return absl::StrCat("'", operation.label, "' (stream ", operation.stream_id, ")");
}

std::string Range(CUdeviceptr address, uint64_t bytes) {
  return absl::StrCat("[0x", absl::Hex(address), ", +", bytes, ")");
}

}  // namespace

void RaceChecker::Check(const std::shared_ptr<OperationRecord>& operation, CUdeviceptr address,
                        const PhysicalSpan* spans, size_t count, bool write) {
  if (reported_for_ != operation.get()) {
    reported_.clear();
    reported_for_ = operation.get();
  }
  spans_since_sweep_ += count;
  Use use{operation, address};
  for (size_t i = 0; i < count; ++i) {
    const PhysicalSpan& span = spans[i];
    CheckSpan(stores_[span.store], use, span.offset, span.offset + span.bytes, write);
    use.address += span.bytes;
  }
}

void RaceChecker::SplitAt(Shadow& shadow, uint64_t offset) {
  auto it = shadow.upper_bound(offset);
  if (it == shadow.begin()) return;
  --it;
  Cell& left = *it->second;
  if (it->first == offset || left.end <= offset) return;
  const uint64_t shift = offset - it->first;
  auto right = std::make_unique<Cell>(left);
  right->writer.address += shift;
  for (Use& reader : right->readers) reader.address += shift;
  left.end = offset;
  shadow.emplace_hint(++it, offset, std::move(right));
}

void RaceChecker::CheckSpan(Shadow& shadow, const Use& use, uint64_t begin, uint64_t end,
                            bool write) {
  if (begin == end) return;
  auto it = shadow.lower_bound(begin);
  const bool exact = it != shadow.end() && it->first == begin && it->second->end == end;
  if (!exact) {
    SplitAt(shadow, begin);
    SplitAt(shadow, end);
    it = shadow.lower_bound(begin);
  }
  if (write) {
    if (it == shadow.end() || it->first >= end) {
      shadow.emplace_hint(it, begin, std::make_unique<Cell>(Cell{end, use, {}}));
      return;
    }
    auto last = it;
    for (; last != shadow.end() && last->first < end; ++last) {
      Compare(*last->second, last->first, {use.operation, use.address + (last->first - begin)},
              true);
    }
    if (it->first == begin) {  // reuse the first cell for the whole range
      Cell& cell = *it->second;
      cell.end = end;
      cell.writer = use;
      cell.readers.clear();
      auto second = std::next(it);
      if (second != last) shadow.erase(second, last);
    } else {
      it = shadow.erase(it, last);
      shadow.emplace_hint(it, begin, std::make_unique<Cell>(Cell{end, use, {}}));
    }
    return;
  }
  uint64_t at = begin;
  while (at < end) {
    const Use here{use.operation, use.address + (at - begin)};
    if (it == shadow.end() || it->first > at) {  // never used bytes
      const uint64_t gap_end = it == shadow.end() ? end : std::min(end, it->first);
      it = shadow.emplace_hint(it, at, std::make_unique<Cell>(Cell{gap_end, {}, {here}}));
    } else {
      Cell& cell = *it->second;
      Compare(cell, at, here, false);
      // A later write ordered after this read is ordered after those that came before it.
      cell.readers.erase(std::remove_if(cell.readers.begin(), cell.readers.end(),
                                        [&here](const Use& reader) {
                                          return Ordered(*reader.operation, *here.operation);
                                        }),
                         cell.readers.end());
      cell.readers.push_back(here);
    }
    at = it->second->end;
    ++it;
  }
}

void RaceChecker::Compare(const Cell& cell, uint64_t begin, const Use& use, bool write) {
  const uint64_t bytes = cell.end - begin;
  if (cell.writer.operation != nullptr && !Ordered(*cell.writer.operation, *use.operation)) {
    ReportRace(cell.writer, true, use, write, bytes);
  }
  if (!write) return;
  for (const Use& reader : cell.readers) {
    if (!Ordered(*reader.operation, *use.operation)) ReportRace(reader, false, use, true, bytes);
  }
}

void RaceChecker::ReportRace(const Use& earlier, bool earlier_wrote, const Use& later, bool write,
                             uint64_t bytes) {
  // Once per pair of operations, with the first bytes in conflict.
  if (std::find(reported_.begin(), reported_.end(), earlier.operation.get()) != reported_.end()) {
    return;
  }
  reported_.push_back(earlier.operation.get());
  AddReport({absl::StrCat(
                 Describe(*later.operation), write ? " writes " : " reads ",
                 Range(later.address, bytes), ", not ordered after ", Describe(*earlier.operation),
                 earlier_wrote ? ", which wrote " : ", which read ", Range(earlier.address, bytes)),
             earlier.operation->label, later.operation->label});
}

void RaceChecker::CheckHostRelease(std::string_view entry, CUdeviceptr address,
                                   const PhysicalSpan* spans, size_t count,
                                   const VectorClock& host) {
  reported_.clear();
  reported_for_ = nullptr;
  for (size_t i = 0; i < count; address += spans[i].bytes, ++i) {
    const PhysicalSpan& span = spans[i];
    const auto store = stores_.find(span.store);
    if (store == stores_.end()) continue;
    const auto check = [&](const Use& use, bool wrote, uint64_t begin, uint64_t bytes) {
      // A use through another mapping of the same bytes does not mind that this one goes.
      if (use.operation == nullptr || use.address != address + (begin - span.offset)) return;
      const OperationRecord& operation = *use.operation;
      if (host.Covers(operation.lane, operation.position)) return;
      if (std::find(reported_.begin(), reported_.end(), &operation) != reported_.end()) return;
      reported_.push_back(&operation);
      AddReport(
          {absl::StrCat(std::string(entry), " of ", Range(use.address, bytes), " while ",
                        Describe(operation), wrote ? ", which writes it," : ", which reads it,",
                        " is not known to be complete"),
           operation.label, std::string(entry)});
    };
    auto it = store->second.upper_bound(span.offset);
    if (it != store->second.begin()) --it;
    for (; it != store->second.end() && it->first < span.offset + span.bytes; ++it) {
      const Cell& cell = *it->second;
      const uint64_t begin = std::max(it->first, span.offset);
      const uint64_t end = std::min(cell.end, span.offset + span.bytes);
      if (begin >= end) continue;
      const uint64_t shift = begin - it->first;
      const auto shifted = [shift](const Use& use) {
        return Use{use.operation, use.address + shift};
      };
      check(shifted(cell.writer), true, begin, end - begin);
      for (const Use& reader : cell.readers) check(shifted(reader), false, begin, end - begin);
    }
  }
}

void RaceChecker::ForgetCovered(const std::shared_ptr<const VectorClock>& floor) {
  if (spans_since_sweep_ < spans_until_sweep_ || floor == swept_floor_) return;
  swept_floor_ = floor;
  const auto covered = [&floor](const Use& use) {
    return floor->Covers(use.operation->lane, use.operation->position);
  };
  uint64_t kept = 0;
  for (auto store = stores_.begin(); store != stores_.end();) {
    Shadow& shadow = store->second;
    for (auto it = shadow.begin(); it != shadow.end();) {
      Cell& cell = *it->second;
      if (cell.writer.operation != nullptr && covered(cell.writer)) cell.writer = {};
      cell.readers.erase(std::remove_if(cell.readers.begin(), cell.readers.end(), covered),
                         cell.readers.end());
      const bool empty = cell.writer.operation == nullptr && cell.readers.empty();
      kept += empty ? 0 : 1;
      it = empty ? shadow.erase(it) : std::next(it);
    }
    const auto next = std::next(store);
    if (shadow.empty()) stores_.erase(store);
    store = next;
  }
  spans_since_sweep_ = 0;
  spans_until_sweep_ = std::max(kMinSpansUntilSweep, 2 * kept);
}

void RaceChecker::AddReport(Report report) {
  ++report_count_;
  if (reports_.size() < kMaxKept) reports_.push_back(std::move(report));
}

void RaceChecker::ClearReports() {
  reports_.clear();
  report_count_ = 0;
}

}  // namespace weir::sim
