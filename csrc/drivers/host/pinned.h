// Host memory for asynchronous copies. On the host chip it is ordinary memory, registered by
// address.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

namespace isthmus::host {

class PinnedMemory {
 public:
  static constexpr size_t kAlignment = 4096;  // a page: torch_npu rounds addresses up to one for the device

  void* allocate(size_t bytes);
  void free(void* pointer);
  // Whether [pointer, pointer + bytes) lies in one allocation.
  bool covers(const void* pointer, size_t bytes);

 private:
  std::mutex mutex_;
  std::map<const char*, size_t> allocations_;  // begin -> bytes
};

}  // namespace isthmus::host
