// Stream-ordered memory and its pools. The structures are those of the driver under other names.
#include <vector>

#include "tools/simcuda/runtime/face.h"

using namespace weir::sim::runtime;

namespace {

CUmemLocation Location(const cudaMemLocation& location) {
  CUmemLocation made{};
  made.type = static_cast<CUmemLocationType>(location.type);
  made.id = location.id;
  return made;
}

}  // namespace

extern "C" {

cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t stream) {
  return InContext([=](const DriverTable& driver) {
    return driver.cuMemAllocAsync(AddressOut(pointer), bytes, stream);
  });
}

cudaError_t cudaMallocFromPoolAsync(void** pointer, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  return InContext([=](const DriverTable& driver) {
    return driver.cuMemAllocFromPoolAsync(AddressOut(pointer), bytes, pool, stream);
  });
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  return InContext(
      [=](const DriverTable& driver) { return driver.cuMemFreeAsync(Address(pointer), stream); });
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  if (properties == nullptr) return Finish(cudaErrorInvalidValue);
  return InContext([=](const DriverTable& driver) {
    CUmemPoolProps made{};
    made.allocType = static_cast<CUmemAllocationType>(properties->allocType);
    made.handleTypes = static_cast<CUmemAllocationHandleType>(properties->handleTypes);
    made.location = Location(properties->location);
    made.win32SecurityAttributes = properties->win32SecurityAttributes;
    made.maxSize = properties->maxSize;
    made.usage = properties->usage;
    return driver.cuMemPoolCreate(pool, &made);
  });
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  return InContext([=](const DriverTable& driver) { return driver.cuMemPoolDestroy(pool); });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep_bytes) {
  return InContext(
      [=](const DriverTable& driver) { return driver.cuMemPoolTrimTo(pool, keep_bytes); });
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return InContext([=](const DriverTable& driver) {
    return driver.cuMemPoolSetAttribute(pool, static_cast<CUmemPool_attribute>(attribute), value);
  });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return InContext([=](const DriverTable& driver) {
    return driver.cuMemPoolGetAttribute(pool, static_cast<CUmemPool_attribute>(attribute), value);
  });
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* descriptions,
                                 size_t count) {
  if (descriptions == nullptr && count > 0) return Finish(cudaErrorInvalidValue);
  return InContext([=](const DriverTable& driver) {
    std::vector<CUmemAccessDesc> made(count);
    for (size_t i = 0; i < count; ++i) {
      made[i].location = Location(descriptions[i].location);
      made[i].flags = static_cast<CUmemAccess_flags>(descriptions[i].flags);
    }
    return driver.cuMemPoolSetAccess(pool, made.data(), count);
  });
}

cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags* flags, cudaMemPool_t pool,
                                 cudaMemLocation* location) {
  if (flags == nullptr || location == nullptr) return Finish(cudaErrorInvalidValue);
  return InContext([=](const DriverTable& driver) {
    CUmemAccess_flags found = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    CUmemLocation where = Location(*location);
    const CUresult result = driver.cuMemPoolGetAccess(&found, pool, &where);
    if (result == CUDA_SUCCESS) *flags = static_cast<cudaMemAccessFlags>(found);
    return result;
  });
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return WithDriver(
      [=](const DriverTable& driver) { return driver.cuDeviceGetDefaultMemPool(pool, device); });
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  return WithDriver(
      [=](const DriverTable& driver) { return driver.cuDeviceGetMemPool(pool, device); });
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
  return WithDriver(
      [=](const DriverTable& driver) { return driver.cuDeviceSetMemPool(device, pool); });
}

}  // extern "C"
