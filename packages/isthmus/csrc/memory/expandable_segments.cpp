#include "memory/expandable_segments.h"

#include "core/profiler.h"
#include "core/runtime.h"

namespace isthmus::memory {
namespace {

// Maps a unit of memory at pointer; false if the device is out of memory. Its handle is freed with the
// mapping.
bool map_unit(char* pointer, size_t unit) {
  isthmus_memory_handle handle = nullptr;
  const isthmus_status status = driver().virtual_create(unit, &handle);
  if (status == ISTHMUS_OUT_OF_MEMORY) return false;
  check(status, "virtual_create");
  const isthmus_status mapped = driver().virtual_map(pointer, unit, handle, ISTHMUS_VIRTUAL_READ_WRITE);
  check(driver().virtual_destroy(handle), "virtual_destroy");
  if (mapped == ISTHMUS_OUT_OF_MEMORY) return false;
  check(mapped, "virtual_map");
  return true;
}

void unmap_units(char* pointer, size_t bytes) {
  if (bytes > 0) check(driver().virtual_unmap(pointer, bytes), "virtual_unmap");
}

}  // namespace

void* ExpandableSegments::map(const Policy& policy, const Growth& growth, size_t bytes,
                              size_t expandable_bytes) {
  const profiler::Call call("chipMemMap");
  std::lock_guard<std::mutex> guard(mutex_);
  Expandable& expandable = expandables_[{&policy, growth.expandable}];
  if (expandable.base == nullptr) {
    void* base = nullptr;
    const isthmus_status status = driver().virtual_reserve(expandable_bytes, &base);
    if (status == ISTHMUS_OUT_OF_MEMORY) return nullptr;
    check(status, "virtual_reserve");
    expandable.base = static_cast<char*>(base);
  }
  expandable.unit = growth.unit;
  char* const pointer = expandable.base + growth.offset;
  for (size_t done = 0; done < bytes; done += growth.unit) {
    if (map_unit(pointer + done, growth.unit)) continue;
    unmap_units(pointer, done);
    return nullptr;
  }
  return pointer;
}

void ExpandableSegments::unmap(const Policy& policy, const Range& range) {
  const profiler::Call call("chipMemUnmap");
  std::lock_guard<std::mutex> guard(mutex_);
  const Expandable& expandable = expandables_.at({&policy, range.expandable});
  for (size_t done = 0; done < range.bytes; done += expandable.unit)
    unmap_units(static_cast<char*>(range.pointer) + done, expandable.unit);
}

}  // namespace isthmus::memory
