#include "tools/simcuda/faces.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "tools/simcuda/simulator.h"

using weir::sim::Simulator;

extern "C" void simcuda_refuse(int refuse) { Simulator::refused = refuse != 0; }

extern "C" void simcuda_attach_face(void) {
  Simulator::configured_by_environment = true;
  const char* force = std::getenv("WEIR_SIMCUDA_FORCE");
  if (force != nullptr && std::strcmp(force, "1") == 0) return;
  const bool real =
      access("/proc/driver/nvidia/version", F_OK) == 0 || access("/dev/nvidiactl", F_OK) == 0;
  if (real) simcuda_refuse(1);
}

extern "C" int simcuda_current_device(void) { return Simulator::Get().current_device(); }

extern "C" uint64_t simcuda_generation(void) { return Simulator::Get().generation(); }
