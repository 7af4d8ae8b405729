// The address space of one device, and the memory file behind it.
//
// Offsets count from the start of the window. [0, file_bytes) maps the file; the rest, up to bytes, is
// address space for the virtual memory functions. The file is sparse: a page exists from its first use until
// it is discarded. The window is larger than the device's capacity, so fragmentation does not exhaust it; the
// ledger enforces the capacity.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ranges.h"

namespace isthmus::host {

class Window {
 public:
  static constexpr uint64_t kGranularity = uint64_t{2} << 20;

  // strict: device addresses fault, and the host accesses the memory at other addresses.
  Window(int32_t device, uint64_t capacity, bool strict);
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  char* device_base() const { return device_base_; }
  char* host_base() const { return host_base_; }
  int descriptor() const { return descriptor_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t file_bytes() const { return file_bytes_; }

  bool contains(const void* device_address) const {
    return static_cast<uint64_t>(static_cast<const char*>(device_address) - device_base_) < bytes_;
  }
  uint64_t offset_of(const void* device_address) const {
    return static_cast<uint64_t>(static_cast<const char*>(device_address) - device_base_);
  }
  char* device_address(uint64_t offset) const { return device_base_ + offset; }
  char* host_address(uint64_t offset) const { return host_base_ + offset; }

  // Maps the file from file_offset on at [offset, offset + bytes).
  void map(uint64_t offset, uint64_t file_offset, uint64_t bytes) {
    map_file(offset, descriptor_, file_offset, bytes);
  }
  // Maps any file.
  void map_file(uint64_t offset, int descriptor, uint64_t file_offset, uint64_t bytes);
  // Unmaps the range but keeps it reserved.
  void unmap(uint64_t offset, uint64_t bytes);
  // Returns the file's pages of freed bytes to the system, except those that extend outside unused.
  void discard(Range freed, Range unused) noexcept;

 private:
  const int32_t device_;
  const uint64_t file_bytes_, bytes_;
  int descriptor_ = -1;
  char* device_base_ = nullptr;
  char* host_base_ = nullptr;
};

}  // namespace isthmus::host
