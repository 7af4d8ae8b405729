// Host windows: the CPU's mapping of device memory, and the block at an address.
#pragma once

#include <c10/core/Device.h>

#include <atomic>

#include "memory/block.h"

namespace isthmus::memory {

struct Window {
  uintptr_t device_base, host_base;
  size_t bytes;
  Block** blocks;  // one entry per granule

  BlockTable table() const { return {device_base, blocks}; }
};

namespace detail {
// Written once per device, in order of first use; read without a lock.
extern Window windows[];
extern std::atomic<int> window_count;
}  // namespace detail

// Maps the window of device, if the driver has one. Once per device.
const Window* open_window(c10::DeviceIndex device);

// The block that starts at host address pointer, or null.
inline Block* block_at_host(const void* pointer) noexcept {
  const int count = detail::window_count.load(std::memory_order_acquire);
  for (int i = 0; i < count; ++i) {
    const Window& window = detail::windows[i];
    const uintptr_t offset = reinterpret_cast<uintptr_t>(pointer) - window.host_base;
    if (offset < window.bytes) return window.blocks[offset / kGranule];
  }
  return nullptr;
}

}  // namespace isthmus::memory
