// Finding the driver and filling its table: the real libcuda.so.1, or libsimcuda.so beside Weir.
//
// Libraries are opened once and never closed: pointers into them live as long as the process. Weir
// links neither; everything goes through cuGetProcAddress with an explicit version, because only
// that fixes the ABI.
#ifndef WEIR_DRIVER_LOADER_H_
#define WEIR_DRIVER_LOADER_H_

#include <cstdint>
#include <map>
#include <string>

#include "allocator/driver/driver_table.h"

namespace weir {

// An opened driver library.
struct DriverLibrary {
  std::string name;                               // for messages
  PFN_cuGetProcAddress_v12000 resolve = nullptr;  // cuGetProcAddress_v2
  // Simulated device only.
  int (*configure)(int devices, uint64_t memory_bytes, int64_t lag) = nullptr;
  uint64_t (*virtual_time_ns)() = nullptr;
};

// Both return false with a text that says what is wrong and what to do.
bool OpenCudaLibrary(DriverLibrary* library, std::string* error);
bool OpenSimulatedLibrary(DriverLibrary* library, std::string* error);

struct LoadedTable {
  DriverTable entries;
  int driver_version = 0;                      // 1000 * major + 10 * minor
  std::map<std::string, std::string> missing;  // optional entry -> why it is not there
};

// Fills the table through the library's resolver. False if required entries are missing, with all
// of them in the text.
bool FillDriverTable(const DriverLibrary& library, LoadedTable* table, std::string* error);

}  // namespace weir

#endif  // WEIR_DRIVER_LOADER_H_
