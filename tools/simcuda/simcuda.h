// The control side of the simulated CUDA device: what a test, a benchmark or the weir command does
// to it besides calling CUDA. The CUDA side is reached through SimGetProcAddress (the in-process
// driver table) or by loading build/lib/simcuda/libcuda.so.1.
//
// One simulator per process. It starts itself with the default Config at the first CUDA call.
// Everything here is thread-safe.
#ifndef WEIR_TOOLS_SIMCUDA_SIMCUDA_H_
#define WEIR_TOOLS_SIMCUDA_SIMCUDA_H_

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#define WEIR_SIM_API __attribute__((visibility("default")))

namespace weir::sim {

// How queued stream work is executed.
enum class Executor {
  kDeterministic,  // no threads: a seeded scheduler runs one ready operation at a time
  kThreaded,       // one worker thread per stream
};

struct Config {
  int devices = 1;
  uint64_t memory_bytes = uint64_t{24} << 30;  // per device; sparse, only touched pages cost RAM
  uint64_t granularity = uint64_t{2} << 20;    // of physical memory
  uint64_t seed = 1;
  Executor executor = Executor::kDeterministic;
  // Deterministic executor: work queued beyond this many operations (all streams together) makes
  // the scheduler run some, as a device would meanwhile.
  uint64_t run_ahead = 256;
  // Every so many queries in a row, with nothing queued between, let it run a step.
  uint64_t queries_per_step = 1;
  // Behind the host by so many operations, whoever asks how often: programs that ask more are not
  // shown a faster device. One that only waits for an answer still gets it.
  void SetLag(uint64_t operations) {
    run_ahead = operations;
    queries_per_step = 64;
  }
  bool checker = true;         // the happens-before checker
  bool vmm = true;             // CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
  bool memory_pools = true;    // stream-ordered allocation
  int driver_version = 13000;  // entry points introduced later are not found
};

// Forgets everything (all devices, memory, streams, faults, counters) and starts anew. Pointers and
// handles from before are invalid. Not while another thread is inside a CUDA call.
WEIR_SIM_API void Reset(const Config& config = {});
WEIR_SIM_API const Config& CurrentConfig();

// ---- Time ---------------------------------------------------------------------------------------

// A held stream executes nothing until released; a synchronization that needs it while every other
// stream is idle is a deadlock, reported as CUDA_ERROR_TIMEOUT (909) with the stream's name.
WEIR_SIM_API void HoldStream(int device, CUstream stream);
WEIR_SIM_API void ReleaseStream(int device, CUstream stream);
// Called when the host waits for work that cannot run, because streams are held: time passes while
// it waits, so `hook` may release some, and says whether it did. If not, or without a hook (the
// default, and after Reset), that is the deadlock. Called without the device's lock.
WEIR_SIM_API void OnStalledWait(std::function<bool()> hook);
// Runs one ready operation; false if none was ready. Deterministic executor only.
WEIR_SIM_API bool Step();
// Runs until nothing is ready (held streams keep their work).
WEIR_SIM_API void RunUntilIdle();
WEIR_SIM_API uint64_t QueuedOperations();

// ---- Work that computes -------------------------------------------------------------------------

struct Access {
  CUdeviceptr address;
  uint64_t bytes;
  bool write;
};

// Reads and writes device memory from inside a kernel, through the simulated page table. A fault
// (no mapping, no access right) makes the context sticky-broken with CUDA_ERROR_ILLEGAL_ADDRESS.
class WEIR_SIM_API KernelMemory {
 public:
  virtual ~KernelMemory() = default;
  virtual bool Read(CUdeviceptr address, void* to, uint64_t bytes) = 0;
  virtual bool Write(CUdeviceptr address, const void* from, uint64_t bytes) = 0;
};

// Queues a "kernel" on a stream of the current context: a host function with declared accesses,
// which the checker orders. Legal in capture (it becomes a node). The label appears in reports.
WEIR_SIM_API CUresult Launch(CUstream stream, const std::string& label,
                             std::vector<Access> accesses,
                             std::function<void(KernelMemory&)> body = {});

// ---- The happens-before checker -----------------------------------------------------------------

// An access that is not ordered after a conflicting one to the same physical bytes, whatever the
// addresses. Host-side ordering is one clock for all host threads: what a thread learned by a
// synchronization or a successful query counts for work that any thread submits later.
struct Report {
  std::string text;    // one line, both operations named, with stream, address range and bytes
  std::string first;   // label of the earlier operation
  std::string second;  // label of the later one
};
WEIR_SIM_API std::vector<Report> CheckerReports();
WEIR_SIM_API void ClearCheckerReports();

// ---- Faults -------------------------------------------------------------------------------------

struct Fault {
  std::string entry;  // driver function without version suffix, e.g. "cuMemCreate"; "*" = any
  uint64_t nth = 1;   // counted from now, 1 = the next call
  bool every_later_too = false;
  CUresult result = CUDA_ERROR_UNKNOWN;
  bool sticky = false;  // every later call of the context fails with it too
};
WEIR_SIM_API void InjectFault(const Fault& fault);
WEIR_SIM_API void ClearFaults();
// Calls `hook` once, in the middle of the next call of the entry point: counted, but without effect
// yet. The device is not locked, so other threads may call it meanwhile; the hook may wait for
// them.
WEIR_SIM_API void OnNextCall(const std::string& entry, std::function<void()> hook);
// The share of cuEventQuery / cuStreamQuery calls that say NOT_READY although work is complete.
WEIR_SIM_API void SetSpuriousNotReady(double probability);
// Memory that "another process" holds: lowers free memory; never frees ours.
WEIR_SIM_API void SetOtherProcessBytes(int device, uint64_t bytes);
// From now on every call answers CUDA_ERROR_DEINITIALIZED, as at process exit.
WEIR_SIM_API void Deinitialize();

// ---- Counters and cost --------------------------------------------------------------------------

// Calls per entry point since Reset or ResetCallCounts, failed ones included.
WEIR_SIM_API std::map<std::string, uint64_t> CallCounts();
WEIR_SIM_API uint64_t CallCount(const std::string& entry);
WEIR_SIM_API void ResetCallCounts();

// Virtual driver time: the sum of modelled call costs. Never sleeps.
struct Cost {
  double call_ns = 0;
  double per_handle_ns = 0;  // per physical handle touched
  double per_mib_ns = 0;
};
WEIR_SIM_API void SetCost(const std::string& entry, Cost cost);
WEIR_SIM_API uint64_t VirtualTimeNs();

// Physical bytes in use on a device (handles, classic allocations, pools).
WEIR_SIM_API uint64_t UsedBytes(int device);

// ---- Registered pages: somebody else who holds physical memory
// -----------------------------------

// A simulated peer (a NIC with registered memory, a process that imported a handle). It holds the
// physical pages behind an address range and keeps using them, whatever is mapped there later.
// If the pages are remapped under it, what the program reads is not what the peer wrote.
enum class PeerHold { kRegistration, kExport, kRetain };
class WEIR_SIM_API Peer {
 public:
  Peer(CUdeviceptr address, uint64_t bytes, PeerHold how = PeerHold::kRegistration);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  void Write(uint64_t offset, const void* from, uint64_t bytes);
  void Read(uint64_t offset, void* to, uint64_t bytes) const;
  // Whether the address range still maps to the pages that the peer holds; a range that does not
  // while the peer holds it is also reported by the checker as corruption.
  bool StillMapped() const;

 private:
  struct Impl;
  Impl* impl_;
};

}  // namespace weir::sim

extern "C" {
// The in-process table: the contract of cuGetProcAddress_v2.
WEIR_SIM_API CUresult simcuda_get_proc_address(const char* symbol, void** pfn, int cuda_version,
                                               cuuint64_t flags,
                                               CUdriverProcAddressQueryResult* status);
// For libweir, which opens libsimcuda.so at run time (WEIR_CONF=device:sim). devices or bytes of 0,
// and a lag (Config::SetLag) of -1, keep the default. Returns 0; 1 if the simulator has been used with other values; 2 if devices of
// that size cannot be made.
WEIR_SIM_API int simcuda_configure(int devices, uint64_t memory_bytes, int64_t lag);
WEIR_SIM_API uint64_t simcuda_virtual_time_ns(void);
}

#endif  // WEIR_TOOLS_SIMCUDA_SIMCUDA_H_
