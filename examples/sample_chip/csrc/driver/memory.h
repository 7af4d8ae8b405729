// The memory of one device: an arena of fixed capacity, mapped twice, so that device addresses differ from
// host addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace sample {

class Memory {
 public:
  static constexpr size_t kAlignment = 256;

  explicit Memory(size_t capacity);
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void* allocate(size_t bytes);
  void free(void* pointer);
  // Whether all the bytes lie in one allocation.
  bool covers(const void* pointer, size_t bytes);
  bool contains(const void* pointer) const { return pointer >= base_ && pointer < base_ + capacity_; }

  size_t capacity() const { return capacity_; }
  size_t available();
  void* device_base() const { return base_; }
  void* host_base() const { return host_base_; }

 private:
  const size_t capacity_;
  char* base_;
  char* host_base_;
  std::mutex mutex_;                      // guards the members below
  std::map<size_t, size_t> used_, free_;  // offset to size
};

// Page-locked host memory; here ordinary memory with registered addresses.
class HostMemory {
 public:
  void* allocate(size_t bytes);
  void free(void* pointer);
  bool covers(const void* pointer, size_t bytes);

 private:
  std::mutex mutex_;
  std::map<const char*, size_t> blocks_;
};

}  // namespace sample
