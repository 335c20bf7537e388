// Peers, exports and imports, on two simulated devices in one process.
#include <fcntl.h>
#include <unistd.h>

#include "allocator/pool/device_heap_share.h"
#include "tests/pool/fault_sweep.h"
#include "tests/pool/preset.h"

namespace weir::test {
namespace {

sim::Config TwoDevices(bool vmm = true) {
  sim::Config config = Device(256 * kMiB, vmm);
  config.devices = 2;
  return config;
}

// Descriptors of an export, which hold its memory until they are closed.
struct Exported {
  weir_export_t info = {};
  std::vector<uint64_t> handle_bytes = std::vector<uint64_t>(200);
  std::vector<int> fds = std::vector<int>(200, -1);
  ~Exported() { Close(); }
  void Close() {
    for (size_t i = 0; i < info.count; ++i) close(fds[i]);
    info.count = 0;
  }
};

class ShareFixture : public HeapFixture {
 public:
  explicit ShareFixture(bool vmm = true, const HeapOptions& options = {})
      : HeapFixture(TwoDevices(vmm), options) {
    HeapError error;
    second_ = DeviceHeap::Create(device().Create(1), {}, &error);
    REQUIRE(second_ != nullptr);
  }
  DeviceHeap::Sharing Sharing() { return DeviceHeap::Sharing(heap()); }
  DeviceHeap& second() { return *second_; }

  HeapError Export(uint64_t at, Exported* exported) {
    const HeapError error = Sharing().Export(at, exported->handle_bytes.data(),
                                             exported->fds.data(), 200, &exported->info);
    if (!error.ok()) exported->info.count = 0;
    return error;
  }
  // What a device may do with the memory at an address.
  CUmemAccess_flags Access(uint64_t at, int ordinal) const {
    CUmemLocation location = {};
    location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    location.id = ordinal;
    unsigned long long flags = 0;
    REQUIRE(device().Find<PFN_cuMemGetAccess_v10020>("cuMemGetAccess", 10020)(&flags, &location,
                                                                              at) == CUDA_SUCCESS);
    return static_cast<CUmemAccess_flags>(flags);
  }
  bool PeerHas(uint64_t at) const {
    return Access(at, 1) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE &&
           Access(at, 0) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  void Put(uint64_t at, uint64_t bytes, uint8_t value, int ordinal = 0) const {
    OnDevice(ordinal, [&](const DriverTable& driver) {
      REQUIRE(driver.MemsetD8Async(at, value, bytes, nullptr) == CUDA_SUCCESS);
    });
  }
  bool Holds(uint64_t at, uint64_t bytes, uint8_t value, int ordinal = 0) const {
    std::vector<uint8_t> data(bytes);
    OnDevice(ordinal, [&](const DriverTable& driver) {
      REQUIRE(driver.MemcpyAsync(reinterpret_cast<CUdeviceptr>(data.data()), at, bytes, nullptr) ==
              CUDA_SUCCESS);
    });
    return data == std::vector<uint8_t>(bytes, value);
  }

 private:
  template <typename Fn>
  void OnDevice(int ordinal, Fn fn) const {
    const DriverTable& driver = device().entries();
    REQUIRE(driver.CtxPushCurrent(device().PrimaryContext(ordinal)) == CUDA_SUCCESS);
    fn(driver);
    REQUIRE(driver.CtxSynchronize() == CUDA_SUCCESS);
    CUcontext popped = nullptr;
    REQUIRE(driver.CtxPopCurrent(&popped) == CUDA_SUCCESS);
  }

  std::unique_ptr<DeviceHeap> second_;
};

TEST_CASE("a peer has access to all memory of the device, mapped before and later", "[share]") {
  const char* const conf = GENERATE(values<const char*>({"mode:default", "mode:tight"}));
  ShareFixture f(true, OptionsFrom(conf));
  const CUstream stream = f.NewStream(), other = f.NewStream();
  const uint64_t before = f.Allocate(30 * kMiB, stream), small = f.Allocate(100, stream);
  CHECK(f.Access(before, 1) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
  REQUIRE(f.Sharing().EnablePeerAccess(1).ok());
  REQUIRE(f.Sharing().EnablePeerAccess(1).ok());
  for (uint64_t offset = 0; offset < 30 * kMiB; offset += 2 * kMiB) {
    CHECK(f.PeerHas(before + offset));
  }
  CHECK(f.PeerHas(small));
  const uint64_t later = f.Allocate(100 * kMiB, stream);
  CHECK(f.PeerHas(later));
  f.FreeAsync(later, stream);
  const uint64_t moved = f.Allocate(200 * kMiB, other);  // from idle memory of the first stream
  for (uint64_t offset = 0; offset < 200 * kMiB; offset += 2 * kMiB) {
    REQUIRE(f.PeerHas(moved + offset));
  }
  f.FreeAsync(moved, other);
  f.FreeAsync(before, stream);
  f.FreeAsync(small, stream);
  f.RequireAllIsGivenBack();
}

TEST_CASE("memory that is not mapped is open to a peer through its context", "[share]") {
  ShareFixture f(/*vmm=*/false);
  REQUIRE(f.Sharing().EnablePeerAccess(1).ok());
  REQUIRE(f.Sharing().EnablePeerAccess(1).ok());
  CHECK(sim::CallCount("cuCtxEnablePeerAccess") == 1);
  Exported exported;
  const uint64_t at = f.Allocate(kMiB);
  CHECK(f.Export(at, &exported).code == WEIR_ERROR_CONFIGURATION);
  f.FreeAsync(at);
  f.RequireAllIsGivenBack();
}

TEST_CASE("whichever driver call fails, a peer has all of the memory or none", "[share][fault]") {
  const int reached =
      ForEachFault({"cuMemSetAccess", "cuDeviceCanAccessPeer", "cuCtxEnablePeerAccess",
                    "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent"},
                   /*then=*/"", CUDA_ERROR_UNKNOWN, [&](FaultPoint& point) {
                     ShareFixture f;
                     const CUstream stream = f.NewStream();
                     const uint64_t a = f.Allocate(3 * kMiB, stream), b = f.Allocate(3 * kMiB);
                     const uint64_t small = f.Allocate(100);
                     point.Arm();
                     const HeapError error = f.Sharing().EnablePeerAccess(1);
                     point.Clear();
                     CHECK(error.ok() != point.was_reached());
                     for (const uint64_t at : {a, b, small}) CHECK(f.PeerHas(at) == error.ok());
                     const uint64_t later = f.Allocate(50 * kMiB);
                     CHECK(f.PeerHas(later) == error.ok());
                     for (const uint64_t at : {b, small, later}) f.FreeAsync(at);
                     f.FreeAsync(a, stream);
                     f.RequireAllIsGivenBack();
                   });
  CHECK(reached >= 5);
}

TEST_CASE("an exported block shows the same bytes where it is imported", "[share]") {
  ShareFixture f;
  const uint64_t beside = f.Allocate(700000);
  const uint64_t bytes = GENERATE(uint64_t{600}, uint64_t{200000}, 40 * kMiB);
  const uint64_t at = f.Allocate(bytes);
  f.Put(at, bytes, 7);
  Exported exported;
  // From within the block, not only its begin.
  REQUIRE(f.Export(at + bytes / 2, &exported).ok());
  uint64_t sum = 0;
  for (size_t i = 0; i < exported.info.count; ++i) sum += exported.handle_bytes[i];
  CHECK(sum == exported.info.bytes);
  CHECK(f.Stats().pinned_bytes == sum);
  const uint64_t offset = exported.info.offset - bytes / 2;  // of the block
  CHECK(offset + bytes <= exported.info.bytes);

  const int reader = GENERATE(0, 1);
  DeviceHeap& into = reader == 0 ? f.heap() : f.second();
  uint64_t imported = 0;
  REQUIRE(
      DeviceHeap::Sharing(into)
          .Import(exported.fds.data(), exported.handle_bytes.data(), exported.info.count, &imported)
          .ok());
  exported.Close();
  CHECK(f.Holds(imported + offset, bytes, 7, reader));
  f.Put(imported + offset, bytes, 9, reader);
  CHECK(f.Holds(at, bytes, 9));
  CHECK(into.FreeAsync(imported, nullptr).code == WEIR_ERROR_NOT_OWNED);

  // The pages stay, whatever becomes of the block.
  f.FreeAsync(at);
  f.FreeAsync(beside);
  REQUIRE(f.heap().EmptyCache().ok());
  CHECK(f.Stats().reserved_bytes >= sum);
  CHECK(f.Holds(imported + offset, bytes, 9, reader));
  REQUIRE(f.Sharing().Unexport(at).ok());
  CHECK(f.Sharing().Unexport(at).code == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(f.Stats().pinned_bytes == 0);
  REQUIRE(DeviceHeap::Sharing(into).CloseImport(imported).ok());
  CHECK(DeviceHeap::Sharing(into).CloseImport(imported).code == WEIR_ERROR_NOT_OWNED);
  f.RequireAllIsGivenBack();
}

TEST_CASE("exports are counted, and say what they need", "[share]") {
  ShareFixture f;
  const uint64_t at = f.Allocate(10 * kMiB);
  weir_export_t info = {};
  HeapError error = f.Sharing().Export(at, nullptr, nullptr, 0, &info);
  CHECK(error.code == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(info.count > 0);
  CHECK(info.bytes >= 10 * kMiB);
  CHECK(f.Stats().pinned_bytes == 0);
  {
    Exported first, second;
    REQUIRE(f.Export(at, &first).ok());
    REQUIRE(f.Export(at + 5, &second).ok());
  }
  REQUIRE(f.Sharing().Unexport(at + kMiB).ok());
  CHECK(f.Stats().pinned_bytes == info.bytes);
  REQUIRE(f.Sharing().Unexport(at).ok());
  CHECK(f.Stats().pinned_bytes == 0);
  Exported none;
  f.FreeAsync(at);
  CHECK(f.Export(at, &none).code == WEIR_ERROR_NOT_OWNED);
  CHECK(f.Export(uint64_t{1} << 46, &none).code == WEIR_ERROR_NOT_OWNED);
  f.RequireAllIsGivenBack();
}

TEST_CASE("what is no handle, or not as long, is not imported", "[share]") {
  ShareFixture f;
  const uint64_t at = f.Allocate(10 * kMiB);
  Exported exported;
  REQUIRE(f.Export(at, &exported).ok());
  uint64_t imported = 0;
  const auto import = [&](std::vector<int> fds, std::vector<uint64_t> bytes) {
    return DeviceHeap::Sharing(f.second())
        .Import(fds.data(), bytes.data(), fds.size(), &imported)
        .code;
  };
  const int fd = exported.fds[0], zero = open("/dev/zero", O_RDONLY);
  const uint64_t good = exported.handle_bytes[0];
  CHECK(import({zero}, {2 * kMiB}) == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(import({fd, -1}, {good, 2 * kMiB}) == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(import({fd}, {good + 2 * kMiB}) == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(import({fd}, {good - 1}) == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(import({fd, fd}, {UINT64_MAX - 2 * kMiB + 1, good}) == WEIR_ERROR_INVALID_ARGUMENT);
  CHECK(import({}, {}) == WEIR_ERROR_INVALID_ARGUMENT);
  close(zero);
  CHECK(imported == 0);
  exported.Close();
  REQUIRE(f.Sharing().Unexport(at).ok());
  f.FreeAsync(at);
  f.RequireAllIsGivenBack();
}

TEST_CASE("whichever driver call fails, an export and an import are whole or nothing",
          "[share][fault]") {
  // "": that call alone. Else what fails from then on, so that little can be undone.
  const char* const then = GENERATE(
      values<const char*>({"", "cuMemUnmap", "cuMemRelease", "cuMemImportFromShareableHandle"}));
  std::vector<std::string> entries = HeapEntries();
  entries.push_back("cuMemExportToShareableHandle");
  entries.push_back("cuMemImportFromShareableHandle");
  const int reached = ForEachFault(entries, then, CUDA_ERROR_UNKNOWN, [&](FaultPoint& p) {
    ShareFixture f;
    const uint64_t at = f.Allocate(10 * kMiB);
    f.Put(at, 10 * kMiB, 3);
    // An import that fails keeps what can neither be unmapped nor let go.
    const bool may_leak = p.goes_on();
    const auto try_again = [&] {
      if (p.goes_on()) p.Clear();
    };
    p.Arm();
    {
      Exported exported;
      if (!f.Export(at, &exported).ok()) {
        CHECK(f.Stats().pinned_bytes == 0);
        try_again();
        REQUIRE(f.Export(at, &exported).ok());
      }
      DeviceHeap::Sharing into(f.second());
      const auto import = [&](uint64_t* imported) {
        return into.Import(exported.fds.data(), exported.handle_bytes.data(), exported.info.count,
                           imported);
      };
      uint64_t imported = 0;
      if (!import(&imported).ok()) {
        CHECK(imported == 0);
        try_again();
        REQUIRE(import(&imported).ok());
      }
      if (!into.CloseImport(imported).ok()) {
        try_again();
        REQUIRE(into.CloseImport(imported).ok());
      }
    }
    p.Clear();
    REQUIRE(f.Sharing().Unexport(at).ok());
    CHECK(f.Holds(at, 10 * kMiB, 3));
    f.FreeAsync(at);
    REQUIRE(f.heap().EmptyCache().ok());
    f.RequireValid();
    REQUIRE(f.Stats().reserved_bytes == 0);
    if (!may_leak) REQUIRE(sim::UsedBytes(0) == 0);
  });
  CHECK(reached >= 8);
}

}  // namespace
}  // namespace weir::test
