// Address space and physical memory apart.
#include "ledger.h"
#include "parts.h"
#include "runtime.h"

namespace isthmus::npu {
namespace {

constexpr size_t kGranularity = size_t{2} << 20;  // size of the vendor's huge pages
constexpr uint64_t kHugePages = 1;

isthmus_status virtual_granularity(size_t* bytes) {
  *bytes = kGranularity;
  return ISTHMUS_OK;
}

isthmus_status virtual_reserve(size_t bytes, void** pointer) {
  return call_on_device([&] {
    require(bytes > 0 && bytes % kGranularity == 0, "virtual_reserve: bytes are not a multiple of the unit");
    ISTHMUS_ACL_NEWER(rtReserveMemAddress, pointer, bytes, 0, nullptr, kHugePages);
    return ISTHMUS_OK;
  });
}

isthmus_status virtual_release(void* pointer, size_t) {
  return call_on_device([&] { return ISTHMUS_ACL_NEWER(rtReleaseMemAddress, pointer), ISTHMUS_OK; });
}

isthmus_status virtual_create(size_t bytes, isthmus_memory_handle* handle) {
  return call_on_device([&] {
    require(bytes > 0 && bytes % kGranularity == 0, "virtual_create: bytes are not a multiple of the unit");
    PhysicalMemory memory;
    memory.device = static_cast<uint32_t>(current_device());
    void* made = nullptr;
    ISTHMUS_ACL_NEWER(rtMallocPhysical, &made, bytes, &memory, 0);
    *handle = static_cast<isthmus_memory_handle>(made);
    return ISTHMUS_OK;
  });
}

isthmus_status virtual_destroy(isthmus_memory_handle handle) {
  return call_on_device([&] { return ISTHMUS_ACL_NEWER(rtFreePhysical, handle), ISTHMUS_OK; });
}

isthmus_status virtual_map(void* pointer, size_t bytes, isthmus_memory_handle handle, uint32_t flags) {
  return call_on_device([&] {
    require(flags == ISTHMUS_VIRTUAL_READ_WRITE, "virtual_map: the flags are not ISTHMUS_VIRTUAL_READ_WRITE");
    ISTHMUS_ACL_NEWER(rtMapMem, pointer, bytes, 0, handle, 0);
    ledger().add(pointer, {bytes, {ISTHMUS_MEMORY_DEVICE, current_device()}});
    return ISTHMUS_OK;
  });
}

isthmus_status virtual_unmap(void* pointer, size_t) {
  return call_on_device([&] {
    ISTHMUS_ACL_NEWER(rtUnmapMem, pointer);
    ledger().remove(pointer, ISTHMUS_MEMORY_DEVICE);
    return ISTHMUS_OK;
  });
}

}  // namespace

void add_virtual_memory_functions(isthmus_driver& table) {
  table.virtual_granularity = virtual_granularity;
  table.virtual_reserve = virtual_reserve;
  table.virtual_release = virtual_release;
  table.virtual_create = virtual_create;
  table.virtual_destroy = virtual_destroy;
  table.virtual_map = virtual_map;
  table.virtual_unmap = virtual_unmap;
}

}  // namespace isthmus::npu
