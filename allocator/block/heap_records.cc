#include "allocator/block/heap_records.h"

#include <algorithm>

#include "allocator/base/check.h"
#include "allocator/block/arena.h"

namespace weir {
namespace {

uint64_t AliasBytes(const Handle& handle) {
  uint64_t stitched = 0;
  for (const Mapping* m = handle.mappings; m != nullptr; m = m->next) stitched += m->guest ? 0 : 1;
  return stitched > 1 ? (stitched - 1) * handle.bytes : 0;
}

}  // namespace

void HeldMemory::Gain(uint64_t amount) {
  bytes += amount;
  total_bytes += amount;
  peak_bytes = std::max(peak_bytes, bytes);
  ++handles;
  ++total_handles;
  peak_handles = std::max(peak_handles, handles);
}

void HeldMemory::Lose(uint64_t amount) {
  bytes -= amount;
  --handles;
}

void HeldMemory::ResetPeaks() {
  peak_bytes = bytes;
  peak_handles = handles;
}

HeldMemory& HeapRecords::HeldBy(const Arena& arena) {
  return arena.is_large() ? held_large : held_small;
}

void HeapRecords::CountHeld(const Handle& handle, const Arena* before) {
  const Arena* now = handle.arena();
  HeldMemory* const lost = before != nullptr ? &HeldBy(*before) : nullptr;
  HeldMemory* const gained = now != nullptr ? &HeldBy(*now) : nullptr;
  if (lost == gained) return;
  if (lost != nullptr) lost->Lose(handle.bytes);
  if (gained != nullptr) gained->Gain(handle.bytes);
}

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
  const Arena* const arena_before = handle->arena();
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
  CountHeld(*handle, arena_before);
}

void HeapRecords::Detach(Mapping* mapping) {
  Handle* handle = mapping->handle;
  const uint64_t before = AliasBytes(*handle);
  const Arena* const arena_before = handle->arena();
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
  CountHeld(*handle, arena_before);
}

void HeapRecords::MakeFirst(Mapping* mapping) {
  mapping->last_use = clock;
  Handle* handle = mapping->handle;
  if (handle->mappings == mapping) return;
  const Arena* const arena_before = handle->arena();
  Mapping** link = &handle->mappings;
  while (*link != mapping) link = &(*link)->next;
  *link = mapping->next;
  mapping->next = handle->mappings;
  handle->mappings = mapping;
  CountHeld(*handle, arena_before);
}

}  // namespace weir
