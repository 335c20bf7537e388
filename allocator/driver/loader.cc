#include "allocator/driver/loader.h"

#include <dlfcn.h>
#include <link.h>

#include <filesystem>
#include <system_error>
#include <vector>

#include "allocator/driver/driver_status.h"

namespace weir {
namespace {

constexpr char kUseSimulator[] =
    "To run on the simulated device instead, set WEIR_CONF=device:sim.";

enum class Need { kRequired, kOptional };

std::string VersionText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

template <typename Function>
void Find(void* handle, const char* symbol, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(handle, symbol));
}

// One entry by name. The resolver may say SUCCESS and give no pointer; the reason is then in the
// symbol status.
void* Resolve(const DriverLibrary& library, const char* entry, int version, int driver_version,
              std::string* reason) {
  void* pointer = nullptr;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  const CUresult result =
      library.resolve(entry, &pointer, version, CU_GET_PROC_ADDRESS_DEFAULT, &status);
  if (result == CUDA_SUCCESS && pointer != nullptr) return pointer;
  if (driver_version != 0 && version > driver_version) {
    *reason = "came with CUDA " + VersionText(version) + ", the driver is for CUDA " +
              VersionText(driver_version);
  } else if (status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT) {
    *reason = "the driver has it only in versions newer than CUDA " + VersionText(version);
  } else if (result != CUDA_SUCCESS) {
    *reason = DriverStatus(result, "cuGetProcAddress").ToString();
  } else {
    *reason = "not found in " + library.name;
  }
  return nullptr;
}

// The folder of the file that holds this code: the shared library, or the program if Weir is linked
// statically. Empty if it cannot be found out.
std::filesystem::path OwnFolder() {
  Dl_info info;
  void* extra = nullptr;
  std::filesystem::path file;
  if (dladdr1(reinterpret_cast<void*>(&OwnFolder), &info, &extra, RTLD_DL_LINKMAP) == 0) return {};
  const auto* map = static_cast<const link_map*>(extra);
  // The program itself has no name in the link map (and argv[0] may be any text).
  file = map->l_name[0] == '\0' ? "/proc/self/exe" : map->l_name;
  std::error_code ignored;
  return std::filesystem::canonical(file, ignored).parent_path();
}

}  // namespace

bool OpenCudaLibrary(DriverLibrary* library, std::string* error) {
  library->name = "libcuda.so.1";
  // RTLD_LOCAL: the program's own symbol lookups must not change because Weir is there.
  void* handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    *error = std::string("no CUDA driver: ") + dlerror() + ". Install the NVIDIA driver. " +
             kUseSimulator;
    return false;
  }
  Find(handle, "cuGetProcAddress_v2", &library->resolve);
  // A program may have put the simulator's libcuda.so.1 on its library path.
  Find(handle, "simcuda_virtual_time_ns", &library->virtual_time_ns);
  if (library->virtual_time_ns != nullptr) Find(handle, "simcuda_configure", &library->configure);
  if (library->resolve == nullptr) {
    *error = std::string("the CUDA driver is older than CUDA 12.0 (libcuda.so.1 has no ") +
             "cuGetProcAddress_v2). Install NVIDIA driver 525 or newer. " + kUseSimulator;
    return false;
  }
  return true;
}

bool OpenSimulatedLibrary(DriverLibrary* library, std::string* error) {
  const std::filesystem::path folder = OwnFolder();
  // The last is for programs that hold Weir's static library: a name without a folder is looked for
  // on the dynamic linker's search path.
  const std::filesystem::path candidates[] = {
      folder / "libsimcuda.so", folder / ".." / "lib" / "libsimcuda.so", "libsimcuda.so"};
  std::string tried;
  void* handle = nullptr;
  for (const std::filesystem::path& path : candidates) {
    handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    library->name = path.string();
    if (handle != nullptr) break;
    tried += std::string("\n  ") + dlerror();
  }
  if (handle == nullptr) {
    *error =
        "the simulated device cannot be loaded. Build or install libsimcuda.so beside Weir "
        "(CMake option WEIR_BUILD_TOOLS), or name its folder in LD_LIBRARY_PATH. Tried:" +
        tried;
    return false;
  }
  Find(handle, "simcuda_get_proc_address", &library->resolve);
  Find(handle, "simcuda_configure", &library->configure);
  Find(handle, "simcuda_virtual_time_ns", &library->virtual_time_ns);
  if (library->resolve == nullptr || library->configure == nullptr ||
      library->virtual_time_ns == nullptr) {
    *error = library->name + " is of another version of Weir: build both from one source tree";
    return false;
  }
  return true;
}

bool FillDriverTable(const DriverLibrary& library, LoadedTable* table, std::string* error) {
  struct Entry {
    const char* name;
    int version;
    Need need;
    void (*set)(DriverTable*, void*);
  };
  static constexpr Entry kEntries[] = {
#define WEIR_DRIVER_ENTRY(Name, version, need)                                \
  {"cu" #Name, version, Need::need, [](DriverTable* entries, void* pointer) { \
     entries->Name = reinterpret_cast<decltype(entries->Name)>(pointer);      \
   }},
#include "allocator/driver/entry_points.inc"
  };

  // The version first: it is what explains most absences.
  std::string reason;
  const auto version_of = reinterpret_cast<PFN_cuDriverGetVersion_v2020>(
      Resolve(library, "cuDriverGetVersion", 2020, 0, &reason));
  if (version_of != nullptr && version_of(&table->driver_version) != CUDA_SUCCESS) {
    table->driver_version = 0;
  }

  std::string missing_required;
  for (const Entry& entry : kEntries) {
    void* pointer = Resolve(library, entry.name, entry.version, table->driver_version, &reason);
    if (pointer != nullptr) {
      entry.set(&table->entries, pointer);
    } else if (entry.need == Need::kOptional) {
      table->missing[entry.name] = reason;
    } else {
      missing_required += std::string("\n  ") + entry.name + ": " + reason;
    }
  }
  if (missing_required.empty()) return true;
  *error = library.name + " lacks entry points that Weir needs; install a newer NVIDIA driver. " +
           kUseSimulator + missing_required;
  return false;
}

}  // namespace weir
