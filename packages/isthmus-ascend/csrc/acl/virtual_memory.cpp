// Virtual memory: addresses reserved apart from physical memory; and memory shared with other processes.
#include <cstring>
#include <map>
#include <string>

#include "context.h"

namespace isthmus::ascend {
namespace {

constexpr size_t kKeyBytes = 64;  // size of the driver's handle; the rest of the key is zero

// Sizes that the driver asks for and the vendor's interface does not give.
struct Sizes {
  std::mutex mutex;
  std::map<void*, size_t> reserved, mapped;
  std::multimap<std::string, void*> imported;  // keyed by the exported key

  // Ends what starts at the pointer by a function of the driver; it stays if that fails.
  void end(std::map<void*, size_t>& sizes, void* pointer, const char* state,
           isthmus_status (*end_of)(void*, size_t)) {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = sizes.find(pointer);
    if (found == sizes.end()) fail(kInvalidParameter, "%p is not the start of %s memory", pointer, state);
    check(end_of(pointer, found->second));
    sizes.erase(found);
  }

  void keep(std::map<void*, size_t>& sizes, void* pointer, size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex);
    sizes[pointer] = bytes;
  }
};

size_t round_up(size_t bytes) {
  size_t unit = 0;
  check(chip().virtual_granularity(&unit));
  if (bytes > SIZE_MAX - unit) fail(kOutOfMemory, "%zu bytes of addresses", bytes);
  return (bytes + unit - 1) / unit * unit;
}

Sizes& sizes() {
  static Sizes* const sizes = new Sizes;
  return *sizes;
}

}  // namespace
}  // namespace isthmus::ascend

using namespace isthmus::ascend;

// Layout of the runtime's aclrtPhysicalMemProp.
struct aclrtPhysicalMemProp {
  int handle_type, allocation_type, attribute;
  uint32_t location;  // device
  int location_type;  // 0 host, 1 device
  uint64_t reserved;
};

// A thread without a context reserves for device 0, and any size is allowed: applications probe for the
// function with such a call.
ISTHMUS_ASCEND_EXPORT int aclrtReserveMemAddress(void** pointer, size_t bytes, size_t, void* expected,
                                                 uint64_t) {
  return call("aclrtReserveMemAddress", [&] {
    require_not_null(pointer, "pointer");
    const size_t whole = round_up(bytes);
    void* reserved = nullptr;
    check(chip().virtual_reserve(whole, &reserved));
    if (expected != nullptr && reserved != expected) {
      chip().virtual_release(reserved, whole);
      fail(kUnsupported, "the host chip chooses addresses; pass null instead of %p", expected);
    }
    sizes().keep(sizes().reserved, reserved, whole);
    *pointer = reserved;
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtReleaseMemAddress(void* pointer) {
  return call("aclrtReleaseMemAddress",
              [&] { sizes().end(sizes().reserved, pointer, "reserved", chip().virtual_release); });
}

ISTHMUS_ASCEND_EXPORT int aclrtMallocPhysical(void** handle, size_t bytes,
                                              const aclrtPhysicalMemProp* properties, uint64_t) {
  return call("aclrtMallocPhysical", [&] {
    require_not_null(handle, "handle");
    require_not_null(properties, "properties");
    if (properties->location_type != 1)
      fail(kUnsupported, "location type %d; the host chip has physical memory of devices (1) only",
           properties->location_type);
    require_device(static_cast<int32_t>(properties->location));
    const DeviceScope scope(static_cast<int32_t>(properties->location));
    isthmus_memory_handle created = nullptr;
    check(chip().virtual_create(bytes, &created));
    *handle = created;
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtFreePhysical(void* handle) {
  return call("aclrtFreePhysical",
              [&] { check(chip().virtual_destroy(static_cast<isthmus_memory_handle>(handle))); });
}

ISTHMUS_ASCEND_EXPORT int aclrtMapMem(void* pointer, size_t bytes, size_t offset, void* handle, uint64_t) {
  return call("aclrtMapMem", [&] {
    if (offset != 0) fail(kUnsupported, "offset %zu; the host chip maps from offset 0", offset);
    check(chip().virtual_map(pointer, bytes, static_cast<isthmus_memory_handle>(handle),
                             ISTHMUS_VIRTUAL_READ_WRITE));
    sizes().keep(sizes().mapped, pointer, bytes);
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtUnmapMem(void* pointer) {
  return call("aclrtUnmapMem", [&] { sizes().end(sizes().mapped, pointer, "mapped", chip().virtual_unmap); });
}

// key: of 64 bytes or more; not text.
ISTHMUS_ASCEND_EXPORT int aclrtIpcMemGetExportKey(void* pointer, size_t, char* key, size_t room, uint64_t) {
  return call("aclrtIpcMemGetExportKey", [&] {
    require_not_null(key, "key");
    if (room < kKeyBytes) fail(kInvalidParameter, "a key has %zu bytes, not %zu", kKeyBytes, room);
    isthmus_ipc_handle handle{};
    check(chip().memory_export(pointer, &handle));
    std::memcpy(key, handle.bytes, kKeyBytes);
  });
}

// Any process of the same user may import.
ISTHMUS_ASCEND_EXPORT int aclrtIpcMemSetImportPid(const char* key, int32_t*, size_t) {
  return call("aclrtIpcMemSetImportPid", [&] { require_not_null(key, "key"); });
}

ISTHMUS_ASCEND_EXPORT int aclrtIpcMemImportByKey(void** pointer, const char* key, uint64_t) {
  return call("aclrtIpcMemImportByKey", [&] {
    require_not_null(pointer, "pointer");
    require_not_null(key, "key");
    isthmus_ipc_handle handle{};
    std::memcpy(handle.bytes, key, kKeyBytes);
    void* imported = nullptr;
    check(current_chip().memory_import(&handle, &imported));
    const std::lock_guard<std::mutex> lock(sizes().mutex);
    sizes().imported.emplace(std::string(key, kKeyBytes), imported);
    *pointer = imported;
  });
}

// The process that exported the key has nothing to close.
ISTHMUS_ASCEND_EXPORT int aclrtIpcMemClose(const char* key) {
  return call("aclrtIpcMemClose", [&] {
    require_not_null(key, "key");
    void* pointer = nullptr;
    {
      const std::lock_guard<std::mutex> lock(sizes().mutex);
      const auto found = sizes().imported.find(std::string(key, kKeyBytes));
      if (found == sizes().imported.end()) return;
      pointer = found->second;
      sizes().imported.erase(found);
    }
    check(chip().memory_close(pointer));
  });
}

// Unsupported: the host chip shares memory of aclrtMalloc() only.
ISTHMUS_ASCEND_EXPORT int aclrtMemExportToShareableHandle(void*, int, uint64_t, uint64_t*) {
  return call("aclrtMemExportToShareableHandle", [] {
    fail(kUnsupported, "physical memory is not shared between processes; turn expandable segments off");
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtMemSetPidToShareableHandle(uint64_t, int32_t*, size_t) {
  return call("aclrtMemSetPidToShareableHandle", [] {
    fail(kUnsupported, "physical memory is not shared between processes; turn expandable segments off");
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtMemImportFromShareableHandle(uint64_t, int32_t, void**) {
  return call("aclrtMemImportFromShareableHandle", [] {
    fail(kUnsupported, "physical memory is not shared between processes; turn expandable segments off");
  });
}
