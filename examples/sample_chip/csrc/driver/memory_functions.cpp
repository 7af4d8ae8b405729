// Memory of the device and of the host, addresses.
#include "runtime.h"

namespace sample {
namespace {

isthmus_status memory_allocate(size_t bytes, void** pointer) {
  return guarded([&] {
    require(bytes > 0, "memory_allocate: bytes is 0; it must be at least 1");
    *pointer = current_device().memory.allocate(bytes);
    return ISTHMUS_OK;
  });
}

isthmus_status memory_free(void* pointer) {
  return guarded([&] {
    if (pointer == nullptr) return ISTHMUS_OK;
    const int32_t device = device_of(pointer);
    require(device >= 0, "memory_free: not a device address");
    runtime().devices[device].memory.free(pointer);
    return ISTHMUS_OK;
  });
}

isthmus_status host_allocate(size_t bytes, void** pointer) {
  return guarded([&] {
    require(bytes > 0, "host_allocate: bytes is 0; it must be at least 1");
    *pointer = runtime().host.allocate(bytes);
    return ISTHMUS_OK;
  });
}

isthmus_status host_free(void* pointer) {
  return guarded([&] {
    if (pointer != nullptr) runtime().host.free(pointer);
    return ISTHMUS_OK;
  });
}

isthmus_status pointer_attributes(const void* pointer, isthmus_pointer_attributes* attributes) {
  return guarded([&] {
    const int32_t device = device_of(pointer);
    if (device >= 0 && runtime().devices[device].memory.covers(pointer, 1)) {
      *attributes = {ISTHMUS_MEMORY_DEVICE, device};
    } else {
      *attributes = {runtime().host.covers(pointer, 1) ? ISTHMUS_MEMORY_PINNED : ISTHMUS_MEMORY_UNKNOWN, -1};
    }
    return ISTHMUS_OK;
  });
}

isthmus_status host_window(int32_t index, isthmus_host_window* window) {
  return guarded([&] {
    require_device(index);
    const Memory& memory = runtime().devices[index].memory;
    *window = {memory.device_base(), memory.host_base(), memory.capacity()};
    return ISTHMUS_OK;
  });
}

}  // namespace

void add_memory_functions(isthmus_driver& table) {
  table.memory_allocate = memory_allocate;
  table.memory_free = memory_free;
  table.host_allocate = host_allocate;
  table.host_free = host_free;
  table.pointer_attributes = pointer_attributes;
  table.host_window = host_window;
}

}  // namespace sample
