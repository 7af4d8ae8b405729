#include "pinned.h"

#include <cstdlib>
#include <iterator>

#include "error.h"

namespace isthmus::host {

void* PinnedMemory::allocate(size_t bytes) {
  void* pointer = nullptr;
  const size_t alignment = bytes >= kPage ? kPage : kAlignment;
  if (posix_memalign(&pointer, alignment, bytes) != 0) {
    fail(ISTHMUS_OUT_OF_MEMORY, "host_allocate: the host is out of memory: asked %s; free some or pin less",
         format_bytes(bytes).c_str());
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  allocations_.emplace(static_cast<const char*>(pointer), bytes);
  return pointer;
}

void PinnedMemory::free(void* pointer) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (allocations_.erase(static_cast<const char*>(pointer)) == 0) {
      fail(ISTHMUS_INVALID_ARGUMENT,
           "host_free: %p is not the start of pinned memory; free each address returned by host_allocate() "
           "once",
           pointer);
    }
  }
  std::free(pointer);
}

bool PinnedMemory::covers(const void* pointer, size_t bytes) {
  const char* address = static_cast<const char*>(pointer);
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto next = allocations_.upper_bound(address);
  if (next == allocations_.begin()) return false;
  const auto& [begin, size] = *std::prev(next);
  const size_t within = static_cast<size_t>(address - begin);
  return within < size && bytes <= size - within;
}

}  // namespace isthmus::host
