// PyTorch's interface to the chip's memory: a caching allocator per device, pinned host memory, and the
// router that serves CPU kernels of the delegate route from the chip's memory.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>

#include <atomic>

#include "core/thread_local.h"

namespace isthmus::memory {

// Registers both allocators with PyTorch; once, when the driver is opened.
void register_allocators();

// ---- device memory (device_allocator.cpp)

// The allocator registered for the chip; allocate() uses the current device and its current stream.
c10::DeviceAllocator& device_allocator();

// Memory of stream's device for use on stream. bytes == 0 gives a null pointer with the right device.
// Throws c10::OutOfMemoryError if releasing the cache and retrying fails.
c10::DataPtr allocate(size_t bytes, c10::Stream stream);

// ---- host windows (window.cpp): only with a driver that has host_window

namespace detail {
extern std::atomic<bool> windows_translate;  // some window has different device and host addresses
void* translate(const void* device_pointer) noexcept;
}  // namespace detail

// Host address of a device address. Pointers outside every window are returned unchanged.
inline void* host_address(const void* device_pointer) noexcept {
  if (C10_LIKELY(!detail::windows_translate.load(std::memory_order_relaxed))) {
    return const_cast<void*>(device_pointer);
  }
  return detail::translate(device_pointer);
}

// ---- pinned host memory (host_allocator.cpp)

c10::Allocator& pinned_allocator();
bool is_pinned(const void* pointer) noexcept;
// Records that stream uses the pinned block that contains pointer; it is reused only after that work.
void record_pinned(const void* pointer, c10::Stream stream);
void host_empty_cache();

class Tape;  // tape.h

// ---- router (router.cpp): only with the CPU delegate

// Installs the router as PyTorch's CPU allocator; once, at first use of the chip.
void install_router();

namespace detail {
// Plain data: an access is one instruction, with no call and no guard (core/thread_local.h).
struct Scope {
  bool active;
  c10::DeviceIndex device;
  c10::StreamId stream;
  Tape* noted;  // null: none, as usual
  Tape* taken;
};
extern __thread Scope scope ISTHMUS_THREAD_LOCAL_MODEL __attribute__((visibility("hidden")));
}  // namespace detail

// During its lifetime, CPU allocations of this thread come from the pool of stream's device. Nests.
class PoolScope {
 public:
  explicit PoolScope(c10::Stream stream) noexcept : outer_(detail::scope) {
    detail::scope = {true, stream.device_index(), stream.id(), nullptr, nullptr};
  }
  ~PoolScope() { detail::scope = outer_; }
  PoolScope(const PoolScope&) = delete;
  PoolScope& operator=(const PoolScope&) = delete;

 private:
  detail::Scope outer_;
};

// If the CPU storage's bytes came from a chip's pool, makes it a storage of that chip, in place, and returns
// true: same bytes, chip device, chip allocator. Decided by address. Empty storages are not changed.
bool adopt(c10::StorageImpl& storage);

// Number of pool blocks held by CPU storages: 0 whenever no chip kernel runs. Walks all blocks; for tests.
int64_t host_view_blocks();

}  // namespace isthmus::memory
