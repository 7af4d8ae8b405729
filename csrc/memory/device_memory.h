// One device's memory: a BlockPool behind a lock, fed with segments by the driver.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <deque>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/runtime.h"
#include "memory/block_pool.h"
#include "memory/spin_lock.h"
#include "memory/stream_use.h"
#include "memory/window.h"

namespace isthmus::memory {

struct DriverCalls {
  int64_t retries = 0, out_of_memory = 0, allocated = 0, freed = 0;
};

// Thread-safe. lock_ is never held while the driver is called; reclaim_ is, and only by threads that are out
// of memory or look for finished work, so that one's segments in transit are not another's shortage.
class DeviceMemory {
 public:
  DeviceMemory(c10::DeviceIndex device, const Window* window);

  // Throws c10::OutOfMemoryError after all other means. bytes > 0.
  Block* allocate(int64_t stream, size_t bytes) {
    Block* block;
    {
      std::lock_guard<SpinLock> guard(lock_);
      block = bytes <= kRequestLimit ? pool_.take(pool_.of_stream(stream), bytes) : nullptr;
    }
    if (C10_UNLIKELY(block == nullptr)) block = allocate_slow(stream, bytes);
    if (C10_UNLIKELY(c10::memoryProfilingEnabled()))
      report(block->pointer, static_cast<int64_t>(block->size));
    return block;
  }

  void release(Block* block) noexcept {
    void* const pointer = block->pointer;
    const auto size = static_cast<int64_t>(block->size);
    if (C10_UNLIKELY(block->recorded.load(std::memory_order_relaxed))) {
      release_recorded(block);
    } else {
      std::lock_guard<SpinLock> guard(lock_);
      pool_.give(block);
    }
    if (C10_UNLIKELY(c10::memoryProfilingEnabled())) report(pointer, -size);
  }

  void record(Block* block, c10::Stream stream);
  void empty_cache();

  PoolStatistics statistics(DriverCalls* calls);
  void reset_peaks();
  void reset_accumulated();
  int64_t host_views();

  c10::Device device() const { return device_; }
  bool has_window() const { return has_window_; }
  void* to_host(const Block* block) const { return static_cast<char*>(block->pointer) + host_offset_; }

  // Held across fork(), so that the child finds whole lists.
  void fork_lock() { lock_.lock(); }
  void fork_unlock() { lock_.unlock(); }

 private:
  struct Waiting {
    Block* block;
    std::vector<StreamUse> uses;
  };

  Block* allocate_slow(int64_t stream, size_t bytes);
  Block* take_again(int64_t stream, size_t bytes, bool flush_all);
  Block* grow(int64_t stream, size_t bytes, size_t segment);
  void release_recorded(Block* block) noexcept;
  void collect_finished(bool wait);
  void release_segments();
  [[noreturn]] void throw_out_of_memory(size_t bytes);
  void report(void* pointer, int64_t bytes);

  const c10::Device device_;
  const bool has_window_;
  const ptrdiff_t host_offset_;

  SpinLock lock_;  // guards the rest
  BlockPool pool_;
  DriverCalls calls_;
  std::unordered_map<Block*, std::vector<c10::Stream>> recorded_;
  std::deque<Waiting> waiting_;

  std::mutex reclaim_;
};

namespace detail {
extern std::atomic<DeviceMemory*> device_memories[];
}
DeviceMemory& open_device_memory(c10::DeviceIndex device);

// Initialises the driver on first use; throws where the driver cannot be used.
inline DeviceMemory& device_memory(c10::DeviceIndex device) {
  if (C10_LIKELY(static_cast<unsigned>(device) < unsigned{kMaxDevices})) {
    DeviceMemory* memory = detail::device_memories[device].load(std::memory_order_acquire);
    if (C10_LIKELY(memory != nullptr)) return *memory;
  }
  return open_device_memory(device);
}

// The same, or null if the device has not been used.
inline DeviceMemory* used_device_memory(c10::DeviceIndex device) {
  return static_cast<unsigned>(device) < unsigned{kMaxDevices} ? detail::device_memories[device].load()
                                                               : nullptr;
}

// The deleter of chip DataPtrs; the context is the Block.
void release_block(void* block) noexcept;

}  // namespace isthmus::memory
