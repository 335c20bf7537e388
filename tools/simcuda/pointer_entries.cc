// Entry points: what is known about a pointer.
#include <cstring>

#include "tools/simcuda/entry.h"
#include "tools/simcuda/simulator.h"

namespace weir::sim {
namespace {

template <typename T>
void Put(void* to, T value) {
  std::memcpy(to, &value, sizeof(value));
}

// Where the pointer's range begins: for mappings the whole reservation.
CUdeviceptr RangeStart(const Range& range, uint64_t* bytes) {
  CUdeviceptr base = range.base;
  *bytes = range.bytes;
  if (range.kind == RangeKind::kMapping) {
    Simulator::Get().space().FindReservation(range.base, &base, bytes);
  }
  return base;
}

// Writes the attribute of a known pointer; INVALID_VALUE for attributes that it has not.
CUresult Attribute(void* data, CUpointer_attribute attribute, const Range& range,
                   CUdeviceptr address) {
  Simulator& sim = Simulator::Get();
  const bool mapping = range.kind == RangeKind::kMapping;
  uint64_t start_bytes = 0;
  const CUdeviceptr start = RangeStart(range, &start_bytes);
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      // Handles belong to no context.
      Put<CUcontext>(data, range.device < 0 || mapping ? nullptr : sim.ContextOf(range.device));
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      Put<unsigned int>(data, range.is_host() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      Put<CUdeviceptr>(data, address);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!range.is_host() && range.kind != RangeKind::kManaged) return CUDA_ERROR_INVALID_VALUE;
      Put<CUdeviceptr>(data, address);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      Put<int>(data, range.sync_memops ? 1 : 0);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      Put<unsigned long long>(data, range.buffer_id);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      Put<int>(data, range.kind == RangeKind::kManaged ? 1 : 0);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      Put<int>(data, range.device < 0 ? 0 : range.device);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      Put<int>(data, range.kind == RangeKind::kClassic ? 1 : 0);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      Put<CUdeviceptr>(data, start);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      Put<size_t>(data, start_bytes);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      Put<int>(data, 1);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      Put<unsigned long long>(
          data, mapping ? static_cast<unsigned long long>(
                              sim.handles().properties(range.handle).requestedHandleTypes)
                        : 0);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      Put<int>(data,
               range.kind == RangeKind::kClassic ||
                       (mapping &&
                        sim.handles().properties(range.handle).allocFlags.gpuDirectRDMACapable != 0)
                   ? 1
                   : 0);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      Put<int>(data, sim.space().RightsAt(range, address).Get(sim.current_device()));
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      if (range.kind != RangeKind::kPool) return CUDA_ERROR_INVALID_VALUE;
      Put<CUmemoryPool>(data, range.pool->handle);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      Put<size_t>(data, range.bytes);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      Put<CUdeviceptr>(data, range.base);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      Put<unsigned long long>(data, range.store->id());
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// How many bytes an attribute writes; 0 if it is unknown.
size_t AttributeBytes(CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return sizeof(int);
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return sizeof(uint64_t);
    default:
      return 0;
  }
}

}  // namespace

CUresult SimPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  const Range* range = Simulator::Get().space().Find(address);
  if (data == nullptr || range == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Attribute(data, attribute, *range, address);
}

// Unlike the singular: what does not apply reads as zero, and for a pointer that is not known
// everything does.
CUresult SimPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** data,
                                 CUdeviceptr address) {
  if (count == 0 || attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned int i = 0; i < count; ++i) {
    if (data[i] == nullptr || AttributeBytes(attributes[i]) == 0) return CUDA_ERROR_INVALID_VALUE;
  }
  const Range* range = Simulator::Get().space().Find(address);
  for (unsigned int i = 0; i < count; ++i) {
    std::memset(data[i], 0, AttributeBytes(attributes[i]));
    if (range != nullptr) {
      Attribute(data[i], attributes[i], *range, address);
    } else if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
      Put<int>(data[i], CU_DEVICE_INVALID);
    }
  }
  return CUDA_SUCCESS;
}

CUresult SimPointerSetAttribute(const void* value, CUpointer_attribute attribute,
                                CUdeviceptr address) {
  Range* range = Simulator::Get().space().Find(address);
  if (value == nullptr || range == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Virtual memory management and pools do not know it.
  if (range->kind != RangeKind::kClassic) return CUDA_ERROR_NOT_SUPPORTED;
  unsigned int on = 0;
  std::memcpy(&on, value, sizeof(on));
  range->sync_memops = on != 0;
  return CUDA_SUCCESS;
}

}  // namespace weir::sim
