// The half of DeviceMemory for memory shared with other processes.
#include <sys/stat.h>
#include <unistd.h>

#include <iterator>

#include "error.h"
#include "memory.h"

namespace isthmus::host {
namespace {

uint64_t page_bytes() {
  static const uint64_t bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

SharedPart DeviceMemory::shared_part(const void* pointer) {
  const uint64_t offset = window_.offset_of(pointer);
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = allocations_.find(offset);
  if (found == allocations_.end()) {
    fail(ISTHMUS_INVALID_ARGUMENT,
         "memory_export: %p on chip %d is not the start of an allocation; pass an address returned by "
         "memory_allocate()",
         pointer, device_);
  }
  return {SharedPart::kMemory, window_.descriptor(), offset, found->second.requested};
}

void* DeviceMemory::import(int descriptor, uint64_t file_offset, uint64_t bytes) {
  struct stat info;
  if (fstat(descriptor, &info) != 0 || file_offset > static_cast<uint64_t>(info.st_size) ||
      bytes > static_cast<uint64_t>(info.st_size) - file_offset || bytes == 0) {
    fail(ISTHMUS_INVALID_ARGUMENT, "memory_import: the handle does not match its memory");
  }
  const uint64_t within = file_offset % page_bytes();
  const uint64_t mapped = round_up(within + bytes, page_bytes());
  const uint64_t reserved = round_up(mapped, Window::kGranularity);
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto offset = addresses_.take(reserved, Window::kGranularity);
  if (!offset) {
    fail(ISTHMUS_OUT_OF_MEMORY, "chip %d is out of addresses: asked %s for memory of another process",
         device_, format_bytes(reserved).c_str());
  }
  try {
    window_.map_file(*offset, descriptor, file_offset - within, mapped);
  } catch (...) {
    addresses_.give({*offset, *offset + reserved});
    throw;
  }
  imports_.emplace(*offset + within, Import{bytes, *offset, reserved});
  return window_.device_address(*offset + within);
}

void DeviceMemory::close_import(void* pointer) {
  const uint64_t offset = window_.offset_of(pointer);
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = imports_.find(offset);
  if (found == imports_.end()) {
    fail(ISTHMUS_INVALID_ARGUMENT, "memory_close: %p on chip %d was not returned by memory_import()", pointer,
         device_);
  }
  const Import import = found->second;
  window_.unmap(import.begin, import.reserved);
  imports_.erase(found);
  addresses_.give({import.begin, import.begin + import.reserved});
}

// The caller holds the mutex.
bool DeviceMemory::is_imported(uint64_t offset, uint64_t bytes) const {
  const auto next = imports_.upper_bound(offset);
  if (next == imports_.begin()) return false;
  const auto& [begin, import] = *std::prev(next);
  return offset - begin < import.bytes && bytes <= import.bytes - (offset - begin);
}

}  // namespace isthmus::host
