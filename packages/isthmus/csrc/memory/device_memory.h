// One device's memory: a policy behind a lock, fed by the driver.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <deque>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/runtime.h"
#include "core/thread_local.h"
#include "memory/expandable_segments.h"
#include "memory/history.h"
#include "memory/policy.h"
#include "memory/segments.h"
#include "memory/snapshot.h"
#include "memory/spin_lock.h"
#include "memory/stream_use.h"
#include "memory/window.h"

namespace isthmus::memory {

struct DriverCalls {
  int64_t retries = 0, out_of_memory = 0, allocated = 0, freed = 0, synchronized = 0;
};

// Blocks of a MemPool: a separate policy serves requests of threads that use the pool.
struct PrivatePool {
  std::unique_ptr<Policy> policy;
  int64_t users = 0;            // its MemPool and the graphs that were captured in it
  int64_t graphs = 0;           // live graphs, which need its free memory too
  bool is_last_resort = false;  // serves requests from outside before an out-of-memory error
};

namespace detail {
// The pool that this thread allocates from; 0 is the common one.
extern __thread int64_t pool_of_thread ISTHMUS_THREAD_LOCAL_MODEL __attribute__((visibility("hidden")));
}  // namespace detail

// Thread-safe. lock_ is never held during driver calls; reclaim_ is, only by threads that are out of memory
// or search for finished work, so that segments in transit of one thread do not look like a shortage to
// another.
class DeviceMemory {
 public:
  DeviceMemory(c10::DeviceIndex device, const Window* window);

  // Throws c10::OutOfMemoryError if no memory can be freed for it. bytes > 0.
  Block* allocate(int64_t stream, size_t bytes) {
    Block* block = nullptr;
    if (C10_LIKELY(bytes <= kRequestLimit)) {
      std::lock_guard<SpinLock> guard(lock_);
      block = policy().take(stream, bytes);
    }
    if (C10_UNLIKELY(block == nullptr)) block = allocate_slow(stream, bytes);
    if (C10_UNLIKELY(watched())) tell_allocated(block);
    return block;
  }

  void release(Block* block) noexcept {
    if (C10_UNLIKELY(watched())) tell_returned(block);
    if (C10_UNLIKELY(block->recorded.load(std::memory_order_relaxed))) {
      release_recorded(block);
    } else {
      std::lock_guard<SpinLock> guard(lock_);
      block->home->policy->give(block);
    }
    if (C10_UNLIKELY(!keeps_)) release_unkept();
  }

  // Records that stream uses the block, so that it is reused only after that work.
  void record(Block* block, c10::Stream stream);
  // Marks a communication stream: blocks that it has used are reused after all others.
  void mark_communication(int64_t stream);
  void empty_cache();
  // The boundary between two training steps.
  void step();

  // Fraction of the device's memory that this process may reserve; 1 by default.
  void set_fraction(double fraction);
  double fraction();

  // Adds a user of this device's part of the MemPool with this number. Returns its id on this device, never
  // 0.
  int64_t open_pool(int64_t number, bool is_last_resort, bool of_graph = false);
  // Releases the pool. After the last user, frees its unused memory now, and the rest when its last block is
  // freed.
  void close_pool(int64_t id, bool of_graph = false);

  // The segment of driver memory that contains the address.
  std::optional<Segment> segment_of(const void* pointer);

  PoolStatistics statistics(DriverCalls* calls);
  // Reserved bytes by pool id, including destroyed pools until the next reset.
  std::map<int64_t, Tally> reserved_by_pool();
  void reset_peaks();
  void reset_accumulated();
  int64_t host_views();
  std::vector<SegmentView> snapshot();
  void note_snapshot();  // in the history
  const std::string& policy_name() const { return policy_name_; }
  const PolicyOptions& options() const { return context_.options; }

  // Calls function(block, pool id) for every block while nothing changes.
  template <typename Function>
  void for_each_block(Function function) {
    std::lock_guard<SpinLock> guard(lock_);
    for_each_policy([&function](Policy& policy, int64_t pool) {
      policy.for_each_block([&](Block& block) { function(block, pool); });
    });
  }

  c10::Device device() const { return device_; }
  bool has_window() const { return has_window_; }
  void* to_host(const Block* block) const { return static_cast<char*>(block->pointer) + host_offset_; }

  // Held across fork(), so that the child has consistent lists.
  void fork_lock() { lock_.lock(); }
  void fork_unlock() { lock_.unlock(); }

 private:
  struct Waiting {
    Block* block;
    std::vector<StreamUse> uses;
    bool is_communication;
  };

  static bool watched() { return history::is_on() || c10::memoryProfilingEnabled(); }

  Policy& policy() {
    return C10_LIKELY(detail::pool_of_thread == 0) ? *policy_ : private_policy(detail::pool_of_thread);
  }
  Policy& private_policy(int64_t id);
  template <typename Function>
  void for_each_policy(Function function) {
    function(*policy_, int64_t{0});
    for (auto& [id, pool] : pools_) function(*pool.policy, id);
  }

  template <typename Function>
  void for_each_counter(Function function) {
    for (auto it = reserved_by_pool_.begin(); it != reserved_by_pool_.end();)
      it = pools_.count(it->first) == 0 ? reserved_by_pool_.erase(it) : std::next(it);
    statistics_.for_each_counter(function);
    for (auto& [id, tally] : reserved_by_pool_) tally.for_each_counter(function);
  }

  Block* allocate_slow(int64_t stream, size_t bytes);
  Block* find_slow(int64_t stream, size_t bytes);
  Block* take_again(int64_t stream, size_t bytes, bool all);
  Block* grow(int64_t stream, size_t bytes, size_t* asked);
  void* from_driver(Policy& policy, const Growth& growth, size_t bytes);
  bool is_allowed(size_t bytes);
  void collect_garbage(size_t bytes);
  void release_recorded(Block* block) noexcept;
  bool release_after_capture(Block* block, const std::vector<c10::Stream>& streams) noexcept;
  void release_unkept() noexcept;
  std::unique_lock<std::mutex> lock_reclaim();
  void collect_finished(bool wait);
  enum class Pools : uint8_t { kAll, kNotOpen, kClosed };  // kClosed: only pools that no thread can use
  void release_ranges(size_t need, Pools pools = Pools::kAll);
  bool includes(Pools pools, int64_t pool) const;
  void drop_empty_pools();
  Block* take_last_resort(int64_t stream, size_t bytes);
  [[noreturn]] void throw_out_of_memory(size_t bytes);
  void note(history::Action action, const void* pointer, size_t size, int64_t stream, int64_t pool,
            history::Stack stack) noexcept;
  void tell_allocated(const Block* block);
  void tell_returned(const Block* block) noexcept;
  void tell_profiler(void* pointer, int64_t bytes);

  const c10::Device device_;
  const bool has_window_;
  const ptrdiff_t host_offset_;
  const std::string policy_name_;

  SpinLock lock_;  // guards the rest
  PoolStatistics statistics_;
  PolicyContext context_;
  std::unique_ptr<Policy> policy_;
  const bool keeps_;
  std::map<int64_t, PrivatePool> pools_;
  std::map<int64_t, Tally> reserved_by_pool_;
  Segments segments_;
  DriverCalls calls_;
  std::unordered_map<Block*, std::vector<c10::Stream>> recorded_;
  std::deque<Waiting> waiting_;
  std::vector<int64_t> communication_;  // streams
  double fraction_ = 1;

  std::mutex reclaim_;
  ExpandableSegments expandables_;
  const uint64_t total_;
};

namespace detail {
extern std::atomic<DeviceMemory*> device_memories[];
}
DeviceMemory& open_device_memory(c10::DeviceIndex device);

// Initialises the driver on first use; throws if the driver cannot be used.
inline DeviceMemory& device_memory(c10::DeviceIndex device) {
  if (C10_LIKELY(static_cast<unsigned>(device) < unsigned{kMaxDevices})) {
    DeviceMemory* memory = detail::device_memories[device].load(std::memory_order_acquire);
    if (C10_LIKELY(memory != nullptr)) return *memory;
  }
  return open_device_memory(device);
}

// Memory of the device, or null if it has not been used.
inline DeviceMemory* used_device_memory(c10::DeviceIndex device) {
  return static_cast<unsigned>(device) < unsigned{kMaxDevices} ? detail::device_memories[device].load()
                                                               : nullptr;
}

template <typename Function>
void for_each_device_memory(Function function) {
  for (int device = 0; device < kMaxDevices; ++device) {
    if (DeviceMemory* memory = detail::device_memories[device].load()) function(*memory);
  }
}

int64_t new_pool_number();
// Number of the MemPool with this id on a device.
constexpr int64_t pool_number(int64_t id) { return id / kMaxDevices; }

// The allocator of a device that has not been used yet, before ISTHMUS_ALLOCATOR and ISTHMUS_ALLOC_CONF.
// device < 0: of all. Throws c10::ValueError for unknown names and c10::Error when the device is in use.
void choose_policy(int device, const std::string& name, const std::string& options);

// The deleter of chip DataPtrs; the context is the Block.
void release_block(void* block) noexcept;

}  // namespace isthmus::memory
