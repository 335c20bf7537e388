// RemapModel: what an observer of remaps believes to be mapped where, compared with the simulated
// device's page table at each event and whenever a test asks.
#ifndef WEIR_TESTS_POOL_REMAP_MODEL_H_
#define WEIR_TESTS_POOL_REMAP_MODEL_H_

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "allocator/vmm/remap_observers.h"
#include "tests/pool/heap_fixture.h"

namespace weir::test {

class RemapModel {
 public:
  explicit RemapModel(HeapFixture& f)
      : f_(f),
        get_range_(f.device().Find<CUresult (*)(CUdeviceptr*, size_t*, CUdeviceptr)>(
            "cuMemGetAddressRange", 3020)),
        get_access_(
            f.device().Find<CUresult (*)(unsigned long long*, const CUmemLocation*, CUdeviceptr)>(
                "cuMemGetAccess", 10020)) {
    RemapObservers::Get().observers().Add(self());
  }
  ~RemapModel() { CHECK(RemapObservers::Get().observers().Remove(self())); }
  RemapModel(const RemapModel&) = delete;
  RemapModel& operator=(const RemapModel&) = delete;

  // Nothing was told at the wrong moment, and everywhere where Weir ever was what was told last is
  // what the device shows. (Memory without access is none: Weir never hands it out.)
  void RequireTrue() {
    const std::lock_guard<std::mutex> lock(mu_);
    for (const std::string& wrong : wrong_) {
      INFO(wrong);
      REQUIRE(wrong_.empty());
    }
    for (const auto& [at, bytes] : ever_) {
      for (uint64_t granule = at; granule < at + bytes; granule += 2 * kMiB) {
        INFO("0x" << std::hex << granule);
        REQUIRE(IsMapped(granule) == IsBelieved(granule));
      }
    }
  }
  uint64_t mapped_bytes() const {
    uint64_t sum = 0;
    for (const auto& [at, bytes] : mapped_) sum += bytes;
    return sum;
  }
  uint64_t unmaps() const { return unmaps_; }
  uint64_t maps() const { return maps_; }

 private:
  RemapObserver self() { return {&RemapModel::OnEvent, this}; }
  static void OnEvent(int device, void* address, size_t bytes, int event, void* model) {
    static_cast<RemapModel*>(model)->OnEvent(device, reinterpret_cast<uintptr_t>(address), bytes,
                                             event);
  }
  void OnEvent(int device, uint64_t at, uint64_t bytes, int event) {
    const std::lock_guard<std::mutex> lock(mu_);
    Expect(device == f_.heap().driver().ordinal(), "another device", at);
    ever_[at] = std::max(ever_[at], bytes);
    CUdeviceptr base = 0;
    size_t length = 0;
    const bool exists = get_range_(&base, &length, at) == CUDA_SUCCESS;
    Expect(exists && base == at && length == bytes, "no mapping of these bytes", at);
    const auto known = mapped_.find(at);
    if (event == WEIR_REMAP_BEFORE_UNMAP) {
      ++unmaps_;
      // What is taken back before it was accessible is not known.
      if (known == mapped_.end()) {
        Expect(!IsMapped(at), "unmapped, but never told", at);
        return;
      }
      Expect(known->second == bytes, "unmapped otherwise than mapped", at);
      mapped_.erase(known);
    } else {
      ++maps_;
      Expect(event == WEIR_REMAP_AFTER_MAP, "no such event", at);
      Expect(IsMapped(at), "told before it was accessible", at);
      Expect(known == mapped_.end(), "mapped twice", at);
      mapped_[at] = bytes;
    }
  }
  void Expect(bool condition, const char* what, uint64_t at) {
    if (!condition) wrong_.push_back(std::string(what) + " at " + std::to_string(at));
  }
  // With access, or a segment of cuMemAlloc.
  bool IsMapped(uint64_t at) const {
    CUdeviceptr base = 0;
    size_t length = 0;
    if (get_range_(&base, &length, at) != CUDA_SUCCESS) return false;
    CUmemLocation location{};
    location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    unsigned long long flags = 0;
    // A segment has no rights of its own.
    return get_access_(&flags, &location, at) != CUDA_SUCCESS || flags != 0;
  }
  bool IsBelieved(uint64_t at) const {
    auto after = mapped_.upper_bound(at);
    return after != mapped_.begin() && at - std::prev(after)->first < std::prev(after)->second;
  }

  HeapFixture& f_;
  CUresult (*const get_range_)(CUdeviceptr*, size_t*, CUdeviceptr);
  CUresult (*const get_access_)(unsigned long long*, const CUmemLocation*, CUdeviceptr);
  std::mutex mu_;
  std::map<uint64_t, uint64_t> mapped_;  // address, bytes
  std::map<uint64_t, uint64_t> ever_;
  std::vector<std::string> wrong_;
  uint64_t unmaps_ = 0, maps_ = 0;
};

}  // namespace weir::test

#endif  // WEIR_TESTS_POOL_REMAP_MODEL_H_
