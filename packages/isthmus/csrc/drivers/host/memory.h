// Memory of one device: allocations, and physical memory mapped at reserved addresses. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "driver.h"
#include "ledger.h"
#include "ranges.h"
#include "sharing.h"
#include "window.h"

// Physical memory created by virtual_create().
struct isthmus_memory_handle_t {
  uint64_t file_offset;
  uint64_t bytes;
  int mappings;  // the memory exists until it is destroyed and its last mapping is removed
  bool destroyed;
};

namespace isthmus::host {

class DeviceMemory {
 public:
  static constexpr uint64_t kAlignment = 512;

  DeviceMemory(int32_t device, uint64_t capacity, bool strict);

  const Window& window() const { return window_; }
  Ledger::Usage usage();
  // Whether [pointer, pointer + bytes) is in one allocation, or in addresses mapped without a gap.
  bool covers(const void* pointer, size_t bytes);
  // The parts of the device's file mapped at [pointer, pointer + bytes), in order; empty if not fully mapped
  // or another process's memory.
  std::vector<Range> file_ranges(const void* pointer, size_t bytes);
  // The host address of a device address.
  char* host_address(const void* pointer) const { return window_.host_address(window_.offset_of(pointer)); }

  void* allocate(size_t bytes);
  void free(void* pointer);

  void* reserve(size_t bytes);
  void release(void* pointer, size_t bytes);
  isthmus_memory_handle create(size_t bytes);
  bool owns(isthmus_memory_handle handle);
  void destroy(isthmus_memory_handle handle);
  void map(void* pointer, size_t bytes, isthmus_memory_handle handle);
  void unmap(void* pointer, size_t bytes);

  // The part of the device's file that holds an allocation.
  SharedPart shared_part(const void* pointer);
  // Maps a part of another process's file, which counts against that process's share of the capacity.
  void* import(int descriptor, uint64_t file_offset, uint64_t bytes);
  void close_import(void* pointer);

  // Releases this process's share of the capacity.
  void leave();

 private:
  struct Allocation {
    uint64_t requested, reserved;  // bytes
  };
  struct Mapping {
    uint64_t bytes;
    isthmus_memory_handle handle;
  };

  struct Import {
    uint64_t bytes;
    uint64_t begin, reserved;  // addresses, from the offset in the window
  };

  uint64_t take_memory(uint64_t bytes, uint64_t alignment, const char* purpose);
  void give_memory(uint64_t offset, uint64_t bytes);
  void poison(uint64_t offset, uint64_t bytes);
  void drop_if_unused(isthmus_memory_handle handle);
  uint64_t reserved_range(const void* pointer, size_t bytes, const char* function);
  bool mapped_without_gap(uint64_t offset, uint64_t bytes) const;
  bool is_imported(uint64_t offset, uint64_t bytes) const;

  const int32_t device_;
  const uint64_t capacity_;
  const bool strict_;
  Window window_;
  std::mutex mutex_;  // guards what follows
  Ledger ledger_;
  RangeAllocator file_;                         // offsets of the file, which are offsets of the window
  RangeAllocator addresses_;                    // offsets of the window behind the file
  std::map<uint64_t, Allocation> allocations_;  // keyed by offset
  std::map<uint64_t, uint64_t> reservations_;   // offset -> bytes
  std::map<uint64_t, Mapping> mappings_;        // keyed by offset
  std::map<uint64_t, Import> imports_;          // keyed by offset
  std::map<isthmus_memory_handle, std::unique_ptr<isthmus_memory_handle_t>> handles_;
};

}  // namespace isthmus::host
