#include "allocator/block/heap_records.h"

#include "allocator/base/check.h"

namespace weir {
namespace {

uint64_t AliasBytes(const Handle& handle) {
  uint64_t stitched = 0;
  for (const Mapping* m = handle.mappings; m != nullptr; m = m->next) stitched += m->guest ? 0 : 1;
  return stitched > 1 ? (stitched - 1) * handle.bytes : 0;
}

}  // namespace

void HeapRecords::CountAgain(Handle* handle, uint64_t alias_bytes_before) {
  const uint64_t now = AliasBytes(*handle);
  alias_bytes = alias_bytes - alias_bytes_before + now;
  for (Mapping* m = handle->mappings; m != nullptr; m = m->next) {
    m->shared = m->guest || now > 0;
    if (m->last_use == 0) m->last_use = clock;
  }
}

void HeapRecords::Attach(Mapping* mapping, Handle* handle) {
  const uint64_t before = AliasBytes(*handle);
  mapping->handle = handle;
  mapping->bytes = handle->bytes;
  if (handle->mappings == nullptr) {
    mapping->next = nullptr;
    handle->mappings = mapping;
  } else {
    mapping->next = handle->mappings->next;
    handle->mappings->next = mapping;
  }
  guests += mapping->guest ? 1 : 0;
  CountAgain(handle, before);
}

void HeapRecords::Detach(Mapping* mapping) {
  Handle* handle = mapping->handle;
  const uint64_t before = AliasBytes(*handle);
  Mapping** link = &handle->mappings;
  while (*link != mapping) {
    WEIR_DCHECK(*link != nullptr);
    link = &(*link)->next;
  }
  *link = mapping->next;
  mapping->next = nullptr;
  guests -= mapping->guest ? 1 : 0;
  dead_guests -= mapping->guest && mapping->live == 0 ? 1 : 0;
  CountAgain(handle, before);
}

void HeapRecords::MakeFirst(Mapping* mapping) {
  mapping->last_use = clock;
  Handle* handle = mapping->handle;
  if (handle->mappings == mapping) return;
  Mapping** link = &handle->mappings;
  while (*link != mapping) link = &(*link)->next;
  *link = mapping->next;
  mapping->next = handle->mappings;
  handle->mappings = mapping;
}

}  // namespace weir
