// Device memory, page-locked and registered host memory.
#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <map>

#include "context.h"
#include "stream.h"

namespace isthmus::ascend {
namespace {

// Host memory that the application registered, by address.
struct Registered {
  std::mutex mutex;
  std::map<char*, size_t> ranges;
};

Registered& registered_ranges() {
  static Registered* const registered = new Registered;
  return *registered;
}

void register_host(void* pointer, size_t bytes) {
  require_not_null(pointer, "pointer");
  if (bytes == 0) fail(kInvalidParameter, "0 bytes at %p; register at least 1", pointer);
  char* const begin = static_cast<char*>(pointer);
  const std::lock_guard<std::mutex> lock(registered_ranges().mutex);
  auto& ranges = registered_ranges().ranges;
  const auto next = ranges.lower_bound(begin);
  const bool overlaps_next = next != ranges.end() && next->first < begin + bytes;
  const bool overlaps_previous =
      next != ranges.begin() && std::prev(next)->first + std::prev(next)->second > begin;
  if (overlaps_next || overlaps_previous)
    fail(kInvalidParameter, "the %zu bytes at %p overlap registered memory; unregister it first", bytes,
         pointer);
  ranges.emplace(begin, bytes);
}

}  // namespace

isthmus_pointer_attributes attributes_of(const void* pointer) {
  isthmus_pointer_attributes attributes{};
  check(chip().pointer_attributes(pointer, &attributes));
  return attributes;
}

bool is_registered(const void* pointer) {
  char* const address = static_cast<char*>(const_cast<void*>(pointer));
  const std::lock_guard<std::mutex> lock(registered_ranges().mutex);
  const auto& ranges = registered_ranges().ranges;
  const auto next = ranges.upper_bound(address);
  return next != ranges.begin() && address < std::prev(next)->first + std::prev(next)->second;
}

uint64_t* value_at(void* pointer) {
  require_not_null(pointer, "address");
  const auto attributes = attributes_of(pointer);
  if (attributes.kind != ISTHMUS_MEMORY_DEVICE)
    fail(kInvalidParameter, "%p is not device memory; pass memory allocated by aclrtMalloc()", pointer);
  isthmus_host_window window{};
  check(chip().host_window(attributes.device, &window));
  const auto offset = static_cast<char*>(pointer) - static_cast<char*>(window.device_base);
  return reinterpret_cast<uint64_t*>(static_cast<char*>(window.host_base) + offset);
}

void require_mapped(const void* pointer, size_t bytes, const char* argument) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto is_mapped = [](uintptr_t address) {
    unsigned char resident;
    return mincore(reinterpret_cast<void*>(address / page * page), 1, &resident) == 0;
  };
  const auto start = reinterpret_cast<uintptr_t>(pointer);
  uintptr_t last = 0;
  if (bytes == 0) return;
  if (__builtin_add_overflow(start, bytes - 1, &last) || !is_mapped(start) || !is_mapped(last))
    fail(kInvalidParameter, "the %zu bytes of the %s at %p are not memory of this process", bytes, argument,
         pointer);
}

void require_accessible(const void* pointer, size_t bytes, const char* argument, Access access) {
  require_mapped(pointer, bytes, argument);
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const int advice = access == Access::kWrite ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  const auto start = reinterpret_cast<uintptr_t>(pointer), first = start / page * page;
  const auto populate = [&](size_t length) {
    return madvise(reinterpret_cast<void*>(first), length, advice);
  };
  if (bytes == 0) return;
  const auto last = static_cast<const char*>(pointer) + bytes - 1;
  const bool leaves =
      attributes_of(pointer).kind != attributes_of(last).kind;  // an allocation of pinned memory
  const bool has_populate = populate(0) == 0;                   // since Linux 5.14
  if (leaves || (has_populate && populate(start + bytes - first) != 0))
    fail(kInvalidParameter, "the %zu bytes of the %s at %p are not memory that this process may %s", bytes,
         argument, pointer, access == Access::kWrite ? "write" : "read");
}

}  // namespace isthmus::ascend

using namespace isthmus::ascend;

ISTHMUS_ASCEND_EXPORT int isthmus_ascend_memory(const void* pointer, size_t bytes) {
  return call("isthmus_ascend_memory", [&] {
    const auto first = attributes_of(pointer);
    if (first.kind != ISTHMUS_MEMORY_DEVICE)
      return require_accessible(pointer, bytes, "operand", Access::kRead);
    const auto last = attributes_of(static_cast<const char*>(pointer) + (bytes == 0 ? 0 : bytes - 1));
    if (last.kind != ISTHMUS_MEMORY_DEVICE || last.device != first.device)
      fail(kInvalidParameter, "the %zu bytes at %p end outside of allocations of device %d", bytes, pointer,
           first.device);
  });
}

// Policies choose pages of the vendor's memory; the host chip has one kind.
ISTHMUS_ASCEND_EXPORT int aclrtMalloc(void** pointer, size_t bytes, int) {
  return call("aclrtMalloc", [&] {
    require_not_null(pointer, "pointer");
    check(current_chip().memory_allocate(bytes, pointer));
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtMallocAlign32(void** pointer, size_t bytes, int) {
  return call("aclrtMallocAlign32", [&] {
    require_not_null(pointer, "pointer");
    check(current_chip().memory_allocate(bytes, pointer));
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtFree(void* pointer) {
  return call("aclrtFree", [&] {
    require_not_null(pointer, "pointer");
    check(chip().memory_free(pointer));
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtMallocHost(void** pointer, size_t bytes) {
  return call("aclrtMallocHost", [&] {
    require_not_null(pointer, "pointer");
    check(current_chip().host_allocate(bytes, pointer));
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtFreeHost(void* pointer) {
  return call("aclrtFreeHost", [&] {
    require_not_null(pointer, "pointer");
    check(chip().host_free(pointer));
  });
}

// The device reaches registered memory under its own address.
ISTHMUS_ASCEND_EXPORT int aclrtHostRegister(void* pointer, uint64_t bytes, int, void** device_pointer) {
  return call("aclrtHostRegister", [&] {
    require_not_null(device_pointer, "device pointer");
    register_host(pointer, bytes);
    *device_pointer = pointer;
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtHostRegisterV2(void* pointer, uint64_t bytes, uint32_t) {
  return call("aclrtHostRegisterV2", [&] { register_host(pointer, bytes); });
}

ISTHMUS_ASCEND_EXPORT int aclrtHostUnregister(void* pointer) {
  return call("aclrtHostUnregister", [&] {
    const std::lock_guard<std::mutex> lock(registered_ranges().mutex);
    if (registered_ranges().ranges.erase(static_cast<char*>(pointer)) == 0)
      fail(kInvalidParameter, "%p is not registered; pass the address given to aclrtHostRegister()", pointer);
  });
}

// Prefetches into the cache, which the CPU does by itself.
ISTHMUS_ASCEND_EXPORT int aclrtCmoAsync(void* pointer, size_t bytes, int, void* stream) {
  return call("aclrtCmoAsync", [&] {
    stream_of(stream);
    if (isthmus_ascend_memory(pointer, bytes) != kSuccess ||
        attributes_of(pointer).kind != ISTHMUS_MEMORY_DEVICE)
      fail(kInvalidParameter, "the %zu bytes at %p are not device memory", bytes, pointer);
  });
}

// All kinds of memory (DDR, HBM, ...) are the device's one.
ISTHMUS_ASCEND_EXPORT int aclrtGetMemInfo(int, size_t* free_bytes, size_t* total_bytes) {
  return call("aclrtGetMemInfo", [&] {
    require_not_null(free_bytes, "free");
    require_not_null(total_bytes, "total");
    uint64_t free_now = 0, total = 0;
    check(current_chip().device_memory(&free_now, &total));
    *free_bytes = free_now;
    *total_bytes = total;
  });
}
