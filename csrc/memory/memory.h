// Memory of the chip as PyTorch sees it: a caching allocator per device, pinned host memory, and the router
// that gives the chip's memory to CPU kernels which run for the chip.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>

namespace isthmus::memory {

// ---- device memory (device_allocator.cpp)

// The allocator registered for the chip; allocate() uses the current device and its current stream.
c10::DeviceAllocator& device_allocator();

// Memory of stream's device for use on stream. bytes == 0 gives a null pointer with the right device.
// Throws c10::OutOfMemoryError after releasing the cache and trying again.
c10::DataPtr allocate(size_t bytes, c10::Stream stream);

// ---- host windows (window.cpp): only with a driver that has host_window

// Address at which the CPU reaches the device address. Any pointer outside every window is returned as it is.
void* host_address(const void* device_pointer) noexcept;

// ---- pinned host memory (host_allocator.cpp)

c10::Allocator& pinned_allocator();
bool is_pinned(const void* pointer) noexcept;
// Says that stream reads or writes the pinned block that holds pointer; it is reused only after that.
void record_pinned(const void* pointer, c10::Stream stream);
struct HostStats {
  int64_t allocated_bytes, reserved_bytes, allocations, reused;
};
HostStats host_stats();
void host_empty_cache();

// ---- router (router.cpp): only with the CPU delegate

// Installs the router as PyTorch's CPU allocator; once, at first use of the chip.
void install_router();

// While it lives, CPU allocations of this thread come from the pool of stream's device. Nests.
class PoolScope {
 public:
  explicit PoolScope(c10::Stream stream) noexcept;
  ~PoolScope();
  PoolScope(const PoolScope&) = delete;
  PoolScope& operator=(const PoolScope&) = delete;

 private:
  bool outer_active_;
  c10::Stream outer_stream_;
};

// While it lives, CPU allocations of this thread are plain CPU memory again.
class PlainScope {
 public:
  PlainScope() noexcept;
  ~PlainScope();
  PlainScope(const PlainScope&) = delete;
  PlainScope& operator=(const PlainScope&) = delete;

 private:
  bool outer_active_;
};

// If the CPU storage's bytes came from a chip's pool, makes it a storage of that chip, in place, and returns
// true: same bytes, chip device, chip allocator. Decided by address.
bool adopt(c10::StorageImpl& storage);

}  // namespace isthmus::memory
