// Memory of devices and page-locked host memory.
#include <string>

#include "ledger.h"
#include "parts.h"
#include "runtime.h"

namespace isthmus::npu {
namespace {

constexpr int kHugePagesFirst = 0;  // aclrtMemMallocPolicy

// vendor: allocates the bytes and returns their address.
template <typename Vendor>
isthmus_status allocate(const char* function, isthmus_pointer_attributes attributes, size_t bytes,
                        void** pointer, Vendor&& vendor) {
  return call_on_device([&] {
    if (bytes == 0) fail(ISTHMUS_INVALID_ARGUMENT, "%s: 0 bytes; allocate at least one", function);
    void* const found = vendor();
    ledger().add(found, {bytes, attributes});
    *pointer = found;
    return ISTHMUS_OK;
  });
}

// vendor: frees the memory.
template <typename Vendor>
isthmus_status release(const char* function, isthmus_memory_kind kind, void* pointer, Vendor&& vendor) {
  return call_on_device([&] {
    if (pointer == nullptr) return ISTHMUS_OK;
    if (!ledger().remove(pointer, kind))
      fail(ISTHMUS_INVALID_ARGUMENT, "%s: the address %p is not allocated memory of this kind", function,
           pointer);
    vendor();
    return ISTHMUS_OK;
  });
}

isthmus_status memory_allocate(size_t bytes, void** pointer) {
  return allocate("memory_allocate", {ISTHMUS_MEMORY_DEVICE, current_device()}, bytes, pointer, [&] {
    void* found = nullptr;
    ISTHMUS_ACL(rtMalloc, &found, bytes, kHugePagesFirst);
    return found;
  });
}

isthmus_status memory_free(void* pointer) {
  return release("memory_free", ISTHMUS_MEMORY_DEVICE, pointer, [&] { ISTHMUS_ACL(rtFree, pointer); });
}

isthmus_status host_allocate(size_t bytes, void** pointer) {
  return allocate("host_allocate", {ISTHMUS_MEMORY_PINNED, -1}, bytes, pointer, [&] {
    void* found = nullptr;
    ISTHMUS_ACL(rtMallocHost, &found, bytes);
    return found;
  });
}

isthmus_status host_free(void* pointer) {
  return release("host_free", ISTHMUS_MEMORY_PINNED, pointer, [&] { ISTHMUS_ACL(rtFreeHost, pointer); });
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
