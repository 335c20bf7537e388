// Lag: a simulated device that is late by so many of the trace's events. What a stream was given up
// to a free is complete only when that many more events have passed, or when the host waits for
// it: time passes then.
//
// After each free a gate is queued, a function of the host that holds the stream (simcuda.h) if it
// comes before its time; the stream is released when the time has come. Not thread-safe. Outlives
// all use of the device.
#ifndef WEIR_TOOLS_REPLAY_LAG_H_
#define WEIR_TOOLS_REPLAY_LAG_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "tools/replay/driver_calls.h"

namespace weir::replay {

class Lag {
 public:
  Lag(DriverCalls& driver, uint64_t events) : driver_(driver), events_(events) {}
  Lag(const Lag&) = delete;
  Lag& operator=(const Lag&) = delete;

  // An event is about to happen: work whose time has come is done before it.
  void NextEvent();
  // What the stream has been given is complete in `events` events. False if the driver refuses.
  bool Gate(int device, CUstream stream);

 private:
  struct OneGate {
    Lag* lag;
    int device;
    CUstream stream;
    uint64_t number;  // from 0, in the order of their time
    uint64_t due;     // the event before which it opens
    bool passed = false;
  };

  static void Reach(void* gate);
  bool OpenUpTo(uint64_t number);  // true if a stream was released
  bool OpenAll();

  DriverCalls& driver_;
  const uint64_t events_;
  uint64_t now_ = 0;
  uint64_t gates_ = 0;       // so far
  uint64_t open_ = 0;        // gates below this number are open
  uint64_t first_kept_ = 0;  // number of the first in `kept_`
  std::deque<OneGate> kept_;
  std::vector<OneGate*> holding_;  // one of each stream that is held
  bool waits_are_seen_ = false;
};

}  // namespace weir::replay

#endif  // WEIR_TOOLS_REPLAY_LAG_H_
