// Device memory, pinned memory, addresses.
#include "device.h"
#include "error.h"
#include "parts.h"

namespace isthmus::host {
namespace {

void require_bytes(size_t bytes, const char* function) {
  if (bytes == 0) fail(ISTHMUS_INVALID_ARGUMENT, "%s: 0 bytes requested; request at least 1", function);
}

isthmus_status memory_allocate(size_t bytes, void** pointer) {
  return call([&] {
    require_not_null(pointer, "memory_allocate", "pointer");
    require_bytes(bytes, "memory_allocate");
    *pointer = current_device().memory().allocate(bytes);
    return ISTHMUS_OK;
  });
}

isthmus_status memory_free(void* pointer) {
  return call([&] {
    if (pointer != nullptr) memory_of(pointer, "memory_free").free(pointer);
    return ISTHMUS_OK;
  });
}

isthmus_status host_allocate(size_t bytes, void** pointer) {
  return call([&] {
    require_not_null(pointer, "host_allocate", "pointer");
    require_bytes(bytes, "host_allocate");
    *pointer = runtime().pinned.allocate(bytes);
    return ISTHMUS_OK;
  });
}

isthmus_status host_free(void* pointer) {
  return call([&] {
    if (pointer != nullptr) runtime().pinned.free(pointer);
    return ISTHMUS_OK;
  });
}

isthmus_status pointer_attributes(const void* pointer, isthmus_pointer_attributes* attributes) {
  return call([&] {
    require_not_null(attributes, "pointer_attributes", "attributes");
    Device* device = find_device(pointer);
    if (device != nullptr && device->memory().covers(pointer, 1)) {
      *attributes = {ISTHMUS_MEMORY_DEVICE, device->index()};
    } else {
      *attributes = {runtime().pinned.covers(pointer, 1) ? ISTHMUS_MEMORY_PINNED : ISTHMUS_MEMORY_UNKNOWN,
                     -1};
    }
    return ISTHMUS_OK;
  });
}

isthmus_status host_window(int32_t index, isthmus_host_window* window) {
  return call([&] {
    require_not_null(window, "host_window", "window");
    const Window& found = device_at(index).memory().window();
    *window = {found.device_base(), found.host_base(), found.bytes()};
    return ISTHMUS_OK;
  });
}

isthmus_status virtual_granularity(size_t* bytes) {
  return call([&] {
    require_not_null(bytes, "virtual_granularity", "bytes");
    *bytes = Window::kGranularity;
    return ISTHMUS_OK;
  });
}

isthmus_status virtual_reserve(size_t bytes, void** pointer) {
  return call([&] {
    require_not_null(pointer, "virtual_reserve", "pointer");
    *pointer = current_device().memory().reserve(bytes);
    return ISTHMUS_OK;
  });
}

isthmus_status virtual_release(void* pointer, size_t bytes) {
  return call([&] {
    memory_of(pointer, "virtual_release").release(pointer, bytes);
    return ISTHMUS_OK;
  });
}

isthmus_status virtual_create(size_t bytes, isthmus_memory_handle* handle) {
  return call([&] {
    require_not_null(handle, "virtual_create", "handle");
    *handle = current_device().memory().create(bytes);
    return ISTHMUS_OK;
  });
}

DeviceMemory& memory_of_handle(isthmus_memory_handle handle, const char* function) {
  for (const auto& device : runtime().devices) {
    DeviceMemory* memory = device->memory_if_open();
    if (memory != nullptr && memory->owns(handle)) return *memory;
  }
  fail(ISTHMUS_INVALID_ARGUMENT, "%s: %p is not a memory handle; pass one returned by virtual_create()",
       function, static_cast<void*>(handle));
}

isthmus_status virtual_destroy(isthmus_memory_handle handle) {
  return call([&] {
    memory_of_handle(handle, "virtual_destroy").destroy(handle);
    return ISTHMUS_OK;
  });
}

isthmus_status virtual_map(void* pointer, size_t bytes, isthmus_memory_handle handle, uint32_t flags) {
  return call([&] {
    if (flags != ISTHMUS_VIRTUAL_READ_WRITE) {
      fail(ISTHMUS_UNSUPPORTED,
           "virtual_map: flags %u; the host chip maps with ISTHMUS_VIRTUAL_READ_WRITE only", flags);
    }
    DeviceMemory& memory = memory_of_handle(handle, "virtual_map");
    if (&memory != &memory_of(pointer, "virtual_map")) {
      fail(ISTHMUS_INVALID_ARGUMENT,
           "virtual_map: the memory handle and the address %p are of different devices", pointer);
    }
    memory.map(pointer, bytes, handle);
    return ISTHMUS_OK;
  });
}

isthmus_status virtual_unmap(void* pointer, size_t bytes) {
  return call([&] {
    memory_of(pointer, "virtual_unmap").unmap(pointer, bytes);
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
  table.virtual_granularity = virtual_granularity;
  table.virtual_reserve = virtual_reserve;
  table.virtual_release = virtual_release;
  table.virtual_create = virtual_create;
  table.virtual_destroy = virtual_destroy;
  table.virtual_map = virtual_map;
  table.virtual_unmap = virtual_unmap;
}

void add_host_window(isthmus_driver& table) { table.host_window = host_window; }

}  // namespace isthmus::host
