#include "memory.h"

#include <algorithm>
#include <iterator>

#include "error.h"

namespace isthmus::host {
namespace {

constexpr uint64_t kLarge = uint64_t{1} << 20;

// Pattern of fresh memory in strict mode: not a number in bfloat16, float16, float32 and float64, and far out
// of range as an index.
constexpr uint16_t kPoison = 0x7ffb;

uint64_t unit_of(uint64_t bytes) { return bytes >= kLarge ? Window::kGranularity : DeviceMemory::kAlignment; }

}  // namespace

DeviceMemory::DeviceMemory(int32_t device, uint64_t capacity, bool strict)
    : device_(device),
      capacity_(capacity),
      strict_(strict),
      window_(device, capacity, strict),
      ledger_(device, capacity),
      file_({0, window_.file_bytes()}),
      addresses_({window_.file_bytes(), window_.bytes()}) {}

Ledger::Usage DeviceMemory::usage() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return ledger_.usage();
}

bool DeviceMemory::covers(const void* pointer, size_t bytes) {
  if (!window_.contains(pointer)) return false;
  const uint64_t offset = window_.offset_of(pointer);
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto next = allocations_.upper_bound(offset);
  if (next != allocations_.begin()) {
    const auto& [begin, allocation] = *std::prev(next);
    const uint64_t within = offset - begin;
    if (within < allocation.requested) return bytes <= allocation.requested - within;
  }
  return mapped_without_gap(offset, bytes) || is_imported(offset, bytes);
}

std::vector<Range> DeviceMemory::file_ranges(const void* pointer, size_t bytes) {
  std::vector<Range> ranges;
  if (bytes == 0 || !covers(pointer, bytes)) return ranges;
  const uint64_t begin = window_.offset_of(pointer), end = begin + bytes;
  if (begin < window_.file_bytes()) return {{begin, end}};
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!mapped_without_gap(begin, bytes)) return ranges;
  for (auto it = std::prev(mappings_.upper_bound(begin)); it != mappings_.end() && it->first < end; ++it) {
    const Mapping& mapping = it->second;
    const uint64_t from = std::max(begin, it->first), to = std::min(end, it->first + mapping.bytes);
    const uint64_t offset = mapping.handle->file_offset + (from - it->first);
    if (!ranges.empty() && ranges.back().end == offset) {
      ranges.back().end += to - from;
    } else {
      ranges.push_back({offset, offset + (to - from)});
    }
  }
  return ranges;
}

bool DeviceMemory::mapped_without_gap(uint64_t offset, uint64_t bytes) const {
  auto it = mappings_.upper_bound(offset);
  if (it == mappings_.begin()) return false;
  --it;
  uint64_t reached = it->first + it->second.bytes;
  if (offset >= reached) return false;
  while (bytes > reached - offset) {
    ++it;
    if (it == mappings_.end() || it->first != reached) return false;
    reached += it->second.bytes;
  }
  return true;
}

void* DeviceMemory::allocate(size_t bytes) {
  // Requests beyond the capacity fail anyway; rounding up must not overflow.
  const uint64_t reserved = bytes > capacity_ ? bytes : round_up(bytes, unit_of(bytes));
  uint64_t offset;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    offset = take_memory(reserved, unit_of(bytes), "memory");
    allocations_.emplace(offset, Allocation{bytes, reserved});
  }
  if (strict_) poison(offset, reserved);
  return window_.device_address(offset);
}

void DeviceMemory::free(void* pointer) {
  const uint64_t offset = window_.offset_of(pointer);
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = allocations_.find(offset);
  if (found == allocations_.end()) {
    fail(ISTHMUS_INVALID_ARGUMENT,
         "memory_free: %p on chip %d is not the start of an allocation; free each address returned by "
         "memory_allocate() once",
         pointer, device_);
  }
  const uint64_t reserved = found->second.reserved;
  allocations_.erase(found);
  give_memory(offset, reserved);
}

// The caller holds the mutex.
uint64_t DeviceMemory::take_memory(uint64_t bytes, uint64_t alignment, const char* purpose) {
  Ledger::Usage before{};
  if (!ledger_.try_reserve(bytes, &before)) {
    const uint64_t held = before.own + before.others;
    fail(ISTHMUS_OUT_OF_MEMORY,
         "chip %d is out of %s: asked %s, %s free of %s (this process holds %s, other processes %s). "
         "Set ISTHMUS_HOST_MEMORY or lower the micro-batch.",
         device_, purpose, format_bytes(bytes).c_str(),
         format_bytes(capacity_ - std::min(held, capacity_)).c_str(), format_bytes(capacity_).c_str(),
         format_bytes(before.own).c_str(), format_bytes(before.others).c_str());
  }
  if (const auto offset = file_.take(bytes, alignment)) return *offset;
  ledger_.release(bytes);
  fail(ISTHMUS_OUT_OF_MEMORY,
       "chip %d is out of contiguous %s: asked %s, largest free block %s. "
       "Allocate in larger pieces or set ISTHMUS_HOST_MEMORY.",
       device_, purpose, format_bytes(bytes).c_str(), format_bytes(file_.largest()).c_str());
}

// The caller holds the mutex.
void DeviceMemory::give_memory(uint64_t offset, uint64_t bytes) {
  const Range freed{offset, offset + bytes};
  window_.discard(freed, file_.give(freed));
  ledger_.release(bytes);
}

void DeviceMemory::poison(uint64_t offset, uint64_t bytes) {
  auto* words = reinterpret_cast<uint16_t*>(window_.host_address(offset));
  std::fill_n(words, bytes / sizeof(uint16_t), kPoison);
}

void DeviceMemory::leave() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ledger_.leave();
}

}  // namespace isthmus::host
