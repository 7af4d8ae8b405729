// Memory of devices and page-locked host memory.
#include "ledger.h"
#include "parts.h"
#include "runtime.h"

namespace isthmus::npu {
namespace {

constexpr int kHugePagesFirst = 0;  // aclrtMemMallocPolicy

isthmus_status memory_allocate(size_t bytes, void** pointer) {
  return call_on_device([&] {
    require(bytes > 0, "memory_allocate: 0 bytes; allocate at least one");
    void* found = nullptr;
    ISTHMUS_ACL(rtMalloc, &found, bytes, kHugePagesFirst);
    ledger().add(found, {bytes, {ISTHMUS_MEMORY_DEVICE, current_device()}});
    *pointer = found;
    return ISTHMUS_OK;
  });
}

isthmus_status memory_free(void* pointer) {
  return call_on_device([&] {
    if (pointer == nullptr) return ISTHMUS_OK;
    require(ledger().remove(pointer, ISTHMUS_MEMORY_DEVICE),
            "memory_free: the address was not allocated by memory_allocate(), or was freed already");
    ISTHMUS_ACL(rtFree, pointer);
    return ISTHMUS_OK;
  });
}

isthmus_status host_allocate(size_t bytes, void** pointer) {
  return call_on_device([&] {
    require(bytes > 0, "host_allocate: 0 bytes; allocate at least one");
    void* found = nullptr;
    ISTHMUS_ACL(rtMallocHost, &found, bytes);
    ledger().add(found, {bytes, {ISTHMUS_MEMORY_PINNED, -1}});
    *pointer = found;
    return ISTHMUS_OK;
  });
}

isthmus_status host_free(void* pointer) {
  return call_on_device([&] {
    if (pointer == nullptr) return ISTHMUS_OK;
    require(ledger().remove(pointer, ISTHMUS_MEMORY_PINNED),
            "host_free: the address was not allocated by host_allocate(), or was freed already");
    ISTHMUS_ACL(rtFreeHost, pointer);
    return ISTHMUS_OK;
  });
}

isthmus_status pointer_attributes(const void* pointer, isthmus_pointer_attributes* attributes) {
  *attributes = ledger().find(pointer);
  return ISTHMUS_OK;
}

}  // namespace

void add_memory_functions(isthmus_driver& table) {
  table.memory_allocate = memory_allocate;
  table.memory_free = memory_free;
  table.host_allocate = host_allocate;
  table.host_free = host_free;
  table.pointer_attributes = pointer_attributes;
}

}  // namespace isthmus::npu
