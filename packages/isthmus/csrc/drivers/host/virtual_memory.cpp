// The virtual memory half of DeviceMemory: reserves addresses, creates memory, maps one at the other.
#include <algorithm>
#include <iterator>
#include <memory>

#include "error.h"
#include "memory.h"

namespace isthmus::host {
namespace {

void require_granular(uint64_t value, const char* function, const char* what) {
  if (value == 0 || value % Window::kGranularity != 0) {
    fail(ISTHMUS_INVALID_ARGUMENT, "%s: %s of %llu is not a multiple of virtual_granularity(), %llu bytes",
         function, what, static_cast<unsigned long long>(value),
         static_cast<unsigned long long>(Window::kGranularity));
  }
}

}  // namespace

void* DeviceMemory::reserve(size_t bytes) {
  require_granular(bytes, "virtual_reserve", "a size");
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto offset = addresses_.take(bytes, Window::kGranularity);
  if (!offset) {
    fail(ISTHMUS_OUT_OF_MEMORY,
         "chip %d is out of addresses: asked %s, largest free range %s; release some or set "
         "ISTHMUS_HOST_MEMORY",
         device_, format_bytes(bytes).c_str(), format_bytes(addresses_.largest()).c_str());
  }
  reservations_.emplace(*offset, bytes);
  return window_.device_address(*offset);
}

void DeviceMemory::release(void* pointer, size_t bytes) {
  const uint64_t offset = window_.offset_of(pointer);
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = reservations_.find(offset);
  if (found == reservations_.end() || found->second != bytes) {
    fail(ISTHMUS_INVALID_ARGUMENT, "virtual_release: %p with %zu bytes is not a reservation of chip %d",
         pointer, bytes, device_);
  }
  const auto mapping = mappings_.lower_bound(offset);
  if (mapping != mappings_.end() && mapping->first < offset + bytes) {
    fail(ISTHMUS_INVALID_ARGUMENT, "virtual_release: memory is still mapped at %p; unmap it first",
         static_cast<void*>(window_.device_address(mapping->first)));
  }
  reservations_.erase(found);
  addresses_.give({offset, offset + bytes});
}

isthmus_memory_handle DeviceMemory::create(size_t bytes) {
  require_granular(bytes, "virtual_create", "a size");
  auto handle = std::make_unique<isthmus_memory_handle_t>();
  const std::lock_guard<std::mutex> lock(mutex_);
  *handle = {take_memory(bytes, Window::kGranularity, "physical memory"), bytes, 0, false};
  if (strict_) poison(handle->file_offset, bytes);
  const isthmus_memory_handle key = handle.get();
  handles_.emplace(key, std::move(handle));
  return key;
}

bool DeviceMemory::owns(isthmus_memory_handle handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = handles_.find(handle);
  return found != handles_.end() && !found->second->destroyed;
}

void DeviceMemory::destroy(isthmus_memory_handle handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  handle->destroyed = true;
  drop_if_unused(handle);
}

void DeviceMemory::map(void* pointer, size_t bytes, isthmus_memory_handle handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t offset = reserved_range(pointer, bytes, "virtual_map");
  if (bytes != handle->bytes) {
    fail(ISTHMUS_INVALID_ARGUMENT, "virtual_map: %zu bytes requested of a handle of %llu; map all of it",
         bytes, static_cast<unsigned long long>(handle->bytes));
  }
  const auto next = mappings_.lower_bound(offset);
  const bool over_next = next != mappings_.end() && next->first < offset + bytes;
  const bool over_previous =
      next != mappings_.begin() && std::prev(next)->first + std::prev(next)->second.bytes > offset;
  if (over_next || over_previous) {
    fail(ISTHMUS_INVALID_ARGUMENT, "virtual_map: memory is already mapped in %zu bytes at %p; unmap it first",
         bytes, pointer);
  }
  window_.map(offset, handle->file_offset, bytes);
  mappings_.emplace(offset, Mapping{bytes, handle});
  ++handle->mappings;
}

void DeviceMemory::unmap(void* pointer, size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t offset = reserved_range(pointer, bytes, "virtual_unmap");
  const uint64_t end = offset + bytes;
  const auto first = mappings_.lower_bound(offset);
  const auto last = mappings_.lower_bound(end);
  const bool splits_first =
      first != mappings_.begin() && std::prev(first)->first + std::prev(first)->second.bytes > offset;
  const bool splits_last =
      last != mappings_.begin() && std::prev(last)->first + std::prev(last)->second.bytes > end;
  if (first == last || splits_first || splits_last) {
    fail(ISTHMUS_INVALID_ARGUMENT,
         "virtual_unmap: %zu bytes at %p are not whole mappings; unmap what was mapped", bytes, pointer);
  }
  window_.unmap(offset, bytes);
  for (auto it = first; it != last; ++it) {
    --it->second.handle->mappings;
    drop_if_unused(it->second.handle);
  }
  mappings_.erase(first, last);
}

// The caller holds the mutex.
void DeviceMemory::drop_if_unused(isthmus_memory_handle handle) {
  if (!handle->destroyed || handle->mappings > 0) return;
  give_memory(handle->file_offset, handle->bytes);
  handles_.erase(handle);
}

// The offset of the range, which must lie in one reservation and be granular. The caller holds the mutex.
uint64_t DeviceMemory::reserved_range(const void* pointer, size_t bytes, const char* function) {
  const uint64_t offset = window_.offset_of(pointer);
  require_granular(bytes, function, "a size");
  require_granular(offset, function, "an offset");
  const auto next = reservations_.upper_bound(offset);
  if (next != reservations_.begin()) {
    const auto& [begin, reserved] = *std::prev(next);
    if (offset - begin < reserved && bytes <= reserved - (offset - begin)) return offset;
  }
  fail(ISTHMUS_INVALID_ARGUMENT, "%s: %zu bytes at %p do not lie in addresses reserved on chip %d", function,
       bytes, pointer, device_);
}

}  // namespace isthmus::host
