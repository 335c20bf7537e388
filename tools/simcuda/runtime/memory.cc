// Memory that belongs to no stream: device, managed, pinned host memory, and what is known about a
// pointer.
#include "tools/simcuda/runtime/face.h"

using namespace weir::sim::runtime;

extern "C" {

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return InContext([=](const DriverTable& driver) {
    if (pointer == nullptr || bytes > 0) return driver.cuMemAlloc(AddressOut(pointer), bytes);
    *pointer = nullptr;
    return CUDA_SUCCESS;
  });
}

cudaError_t cudaMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
  constexpr unsigned int kElementBytes = 4;
  return InContext([=](const DriverTable& driver) {
    return driver.cuMemAllocPitch(AddressOut(pointer), pitch, width, height, kElementBytes);
  });
}

cudaError_t cudaMallocManaged(void** pointer, size_t bytes, unsigned int flags) {
  return InContext([=](const DriverTable& driver) {
    return driver.cuMemAllocManaged(AddressOut(pointer), bytes, flags);
  });
}

// Waits for the work of the device. Null is accepted, and gives the thread its context.
cudaError_t cudaFree(void* pointer) {
  return InContext([=](const DriverTable& driver) {
    return pointer == nullptr ? CUDA_SUCCESS : driver.cuMemFree(Address(pointer));
  });
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return InContext(
      [=](const DriverTable& driver) { return driver.cuMemGetInfo(free_bytes, total_bytes); });
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned int flags) {
  return InContext([=](const DriverTable& driver) {
    if (pointer == nullptr || bytes > 0) return driver.cuMemHostAlloc(pointer, bytes, flags);
    *pointer = nullptr;
    return CUDA_SUCCESS;
  });
}

cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  return cudaHostAlloc(pointer, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void* pointer) {
  return InContext([=](const DriverTable& driver) {
    return pointer == nullptr ? CUDA_SUCCESS : driver.cuMemFreeHost(pointer);
  });
}

cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned int flags) {
  return InContext(
      [=](const DriverTable& driver) { return driver.cuMemHostRegister(pointer, bytes, flags); });
}

cudaError_t cudaHostUnregister(void* pointer) {
  return InContext([=](const DriverTable& driver) { return driver.cuMemHostUnregister(pointer); });
}

cudaError_t cudaHostGetDevicePointer(void** device_pointer, void* pointer, unsigned int flags) {
  return InContext([=](const DriverTable& driver) {
    return driver.cuMemHostGetDevicePointer(AddressOut(device_pointer), pointer, flags);
  });
}

cudaError_t cudaHostGetFlags(unsigned int* flags, void* pointer) {
  return InContext(
      [=](const DriverTable& driver) { return driver.cuMemHostGetFlags(flags, pointer); });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  if (attributes == nullptr) return Finish(cudaErrorInvalidValue);
  return InContext([=](const DriverTable& driver) {
    CUpointer_attribute wanted[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        CU_POINTER_ATTRIBUTE_HOST_POINTER};
    unsigned int memory_type = 0;
    int managed = 0;
    int device = 0;
    void* device_pointer = nullptr;
    void* host_pointer = nullptr;
    void* values[] = {&memory_type, &managed, &device, &device_pointer, &host_pointer};
    const CUresult result = driver.cuPointerGetAttributes(5, wanted, values, Address(pointer));
    if (result != CUDA_SUCCESS) return result;
    *attributes = {};
    attributes->type = managed != 0                          ? cudaMemoryTypeManaged
                       : memory_type == CU_MEMORYTYPE_HOST   ? cudaMemoryTypeHost
                       : memory_type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice
                                                             : cudaMemoryTypeUnregistered;
    attributes->device = device;  // cudaInvalidDeviceId for memory that the driver does not know
    attributes->devicePointer = device_pointer;
    const bool unknown = attributes->type == cudaMemoryTypeUnregistered;
    attributes->hostPointer = unknown ? const_cast<void*>(pointer) : host_pointer;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
