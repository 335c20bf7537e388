#include "tools/replay/lag.h"

#include <algorithm>

#include "tools/simcuda/simcuda.h"

namespace weir::replay {

void Lag::NextEvent() {
  ++now_;
  uint64_t due = open_;
  while (due < gates_ && kept_[due - first_kept_].due <= now_) ++due;
  if (due == open_) return;
  OpenUpTo(due);
  while (sim::Step()) {
  }
  while (!kept_.empty() && kept_.front().passed && kept_.front().number < open_) {
    kept_.pop_front();
    ++first_kept_;
  }
}

bool Lag::Gate(int device, CUstream stream) {
  if (!waits_are_seen_) {
    sim::OnStalledWait([this] { return OpenAll(); });
    waits_are_seen_ = true;
  }
  kept_.push_back({this, device, stream, gates_++, now_ + events_});
  return driver_.LaunchHostFunction(device, stream, &Lag::Reach, &kept_.back());
}

void Lag::Reach(void* data) {
  auto* gate = static_cast<OneGate*>(data);
  Lag& lag = *gate->lag;
  gate->passed = true;
  if (gate->number < lag.open_) return;
  sim::HoldStream(gate->device, gate->stream);
  lag.holding_.push_back(gate);
}

bool Lag::OpenUpTo(uint64_t number) {
  open_ = number;
  const auto closed = std::partition(holding_.begin(), holding_.end(),
                                     [&](const OneGate* gate) { return gate->number >= number; });
  const bool any = closed != holding_.end();
  for (auto gate = closed; gate != holding_.end(); ++gate) {
    sim::ReleaseStream((*gate)->device, (*gate)->stream);
  }
  holding_.erase(closed, holding_.end());
  return any;
}

bool Lag::OpenAll() { return OpenUpTo(gates_); }

}  // namespace weir::replay
