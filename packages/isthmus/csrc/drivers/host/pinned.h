// Host memory for asynchronous copies. On the host chip it is ordinary memory, registered by
// address.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

namespace isthmus::host {

class PinnedMemory {
 public:
  static constexpr size_t kAlignment = 64;
  static constexpr size_t kPage = 4096;  // pinned memory begins with a page if it fills one

  void* allocate(size_t bytes);
  void free(void* pointer);
  // Whether [pointer, pointer + bytes) lies in one allocation.
  bool covers(const void* pointer, size_t bytes);

 private:
  std::mutex mutex_;
  std::map<const char*, size_t> allocations_;  // begin -> bytes
};

}  // namespace isthmus::host
