#include "tools/simcuda/faces.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

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

extern "C" int simcuda_planned_devices(void) {
  weir::sim::Config config;
  std::string error;
  if (Simulator::refused || !weir::sim::ConfigFromEnvironment(&config, &error)) return 0;
  return config.devices;
}

extern "C" void simcuda_uuid(int device, unsigned char* bytes) {
  std::memcpy(bytes, "weir-simulated", 14);
  bytes[14] = 0;
  bytes[15] = static_cast<unsigned char>(device);
}

extern "C" int simcuda_in_forked_child(void) { return Simulator::InForkedChild() ? 1 : 0; }
