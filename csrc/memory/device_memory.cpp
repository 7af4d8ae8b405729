#include "memory/device_memory.h"

#include <pthread.h>

#include <cstdio>

#include "core/stream.h"

namespace isthmus::memory {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kKiB = uint64_t{1} << 10;

uint64_t unit_for(uint64_t bytes) { return bytes >= kGiB ? kGiB : bytes >= kMiB / 10 ? kMiB : kKiB; }

const char* name_of(uint64_t unit) { return unit == kGiB ? " GiB" : unit == kMiB ? " MiB" : " KiB"; }

std::string in_unit(uint64_t bytes, uint64_t unit) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", static_cast<double>(bytes) / static_cast<double>(unit));
  return text;
}

std::string with_unit(uint64_t bytes, uint64_t unit) { return in_unit(bytes, unit) + name_of(unit); }

std::pair<uint64_t, uint64_t> free_and_total(c10::DeviceIndex device) {
  uint64_t free_bytes = 0, total_bytes = 0;
  use_device(device);
  check(driver().device_memory(&free_bytes, &total_bytes), "device_memory");
  return {free_bytes, total_bytes};
}

}  // namespace

DeviceMemory::DeviceMemory(c10::DeviceIndex device, const Window* window)
    : device_(kChip, device),
      has_window_(window != nullptr),
      host_offset_(has_window_ ? static_cast<ptrdiff_t>(window->host_base - window->device_base) : 0),
      pool_(this, has_window_ ? window->table() : BlockTable{}) {}

// The cheapest means first: finished work, merged bins, a new segment, then everything that is cached.
Block* DeviceMemory::allocate_slow(int64_t stream, size_t bytes) {
  if (bytes > kRequestLimit) throw_out_of_memory(bytes);
  collect_finished(/*wait=*/false);
  if (Block* block = take_again(stream, bytes, /*flush_all=*/false)) return block;
  const size_t size = BlockPool::round_size(bytes);
  const size_t segment = BlockPool::segment_size(size);
  if (Block* block = grow(stream, bytes, segment)) return block;

  {
    std::lock_guard<SpinLock> guard(lock_);
    ++calls_.retries;
  }
  collect_finished(/*wait=*/true);
  if (Block* block = take_again(stream, bytes, /*flush_all=*/true)) return block;
  release_segments();
  if (Block* block = grow(stream, bytes, segment)) return block;
  // A segment made for this block alone may still fit where a shared one does not.
  if (segment > size) {
    if (Block* block = grow(stream, bytes, size)) return block;
  }
  {
    std::lock_guard<SpinLock> guard(lock_);
    if (Block* block = pool_.take_large(pool_.of_stream(stream), bytes)) return block;
  }
  throw_out_of_memory(bytes);
}

Block* DeviceMemory::take_again(int64_t stream, size_t bytes, bool flush_all) {
  std::lock_guard<SpinLock> guard(lock_);
  StreamBlocks& blocks = pool_.of_stream(stream);
  if (flush_all) {
    pool_.flush_bins();
  } else if (bytes <= kSmallLimit) {
    if (Block* block = pool_.take(blocks, bytes)) return block;
    pool_.flush_bins_if_many(blocks);
  }
  return pool_.take(blocks, bytes);
}

Block* DeviceMemory::grow(int64_t stream, size_t bytes, size_t segment) {
  use_device(device_.index());
  void* pointer = nullptr;
  const isthmus_status status = driver().memory_allocate(segment, &pointer);
  if (status == ISTHMUS_OUT_OF_MEMORY) return nullptr;
  check(status, "memory_allocate");
  std::lock_guard<SpinLock> guard(lock_);
  ++calls_.allocated;
  return pool_.add_segment(pool_.of_stream(stream), pointer, segment, bytes);
}

void DeviceMemory::record(Block* block, c10::Stream stream) {
  if (stream.device() == device_ && stream.id() == block->home->stream) return;
  std::lock_guard<SpinLock> guard(lock_);
  add_stream(recorded_[block], stream);
  block->recorded.store(true, std::memory_order_relaxed);
}

void DeviceMemory::release_recorded(Block* block) noexcept {
  std::vector<c10::Stream> streams;
  {
    std::lock_guard<SpinLock> guard(lock_);
    const auto found = recorded_.find(block);
    streams = std::move(found->second);
    recorded_.erase(found);
    block->recorded.store(false, std::memory_order_relaxed);
  }
  std::vector<StreamUse> uses = record_uses(streams);
  std::lock_guard<SpinLock> guard(lock_);
  if (uses.empty()) return pool_.give(block);
  pool_.wait_begin(block);
  waiting_.push_back({block, std::move(uses)});
}

void DeviceMemory::collect_finished(bool wait) {
  std::lock_guard<std::mutex> one_at_a_time(reclaim_);
  std::deque<Waiting> waiting;
  {
    std::lock_guard<SpinLock> guard(lock_);
    waiting.swap(waiting_);
  }
  std::deque<Waiting> unfinished;
  std::vector<Block*> finished;
  for (Waiting& entry : waiting) {
    if (uses_done(entry.uses, wait)) {
      finished.push_back(entry.block);
    } else {
      unfinished.push_back(std::move(entry));
    }
  }
  std::lock_guard<SpinLock> guard(lock_);
  for (Block* block : finished) pool_.wait_done(block);
  for (Waiting& entry : unfinished) waiting_.push_front(std::move(entry));
}

void DeviceMemory::release_segments() {
  std::lock_guard<std::mutex> one_at_a_time(reclaim_);
  std::vector<void*> segments;
  {
    std::lock_guard<SpinLock> guard(lock_);
    pool_.flush_bins();
    segments = pool_.remove_free_segments();
    calls_.freed += static_cast<int64_t>(segments.size());
  }
  if (segments.empty()) return;
  // A block is returned while its own stream may still work on it; the driver must not take it before.
  synchronize_device(device_.index());
  for (void* segment : segments) check(driver().memory_free(segment), "memory_free");
}

void DeviceMemory::empty_cache() {
  collect_finished(/*wait=*/true);
  release_segments();
}

void DeviceMemory::throw_out_of_memory(size_t bytes) {
  const auto [free_bytes, total_bytes] = free_and_total(device_.index());
  int64_t reserved, active;
  size_t largest;
  {
    std::lock_guard<SpinLock> guard(lock_);
    ++calls_.out_of_memory;
    reserved = pool_.statistics().reserved_bytes.all.current;
    active = pool_.statistics().active_bytes.all.current;
    largest = pool_.largest_free();
  }
  c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(bytes), static_cast<size_t>(active),
                                   static_cast<size_t>(reserved), device_);
  const uint64_t unit = unit_for(total_bytes), asked_unit = unit_for(bytes);
  const bool is_host = std::string(driver().name) == "host";
  TORCH_CHECK_WITH(OutOfMemoryError, false, "chip ", int{device_.index()}, " is out of memory: asked ",
                   with_unit(bytes, asked_unit), ", ", with_unit(free_bytes, unit), " free of ",
                   with_unit(total_bytes, unit), " (reserved ",
                   in_unit(static_cast<uint64_t>(reserved), unit), ", of which ",
                   in_unit(static_cast<uint64_t>(reserved - active), unit), " unused); largest free block ",
                   with_unit(largest, unit), ". ",
                   is_host ? "Set ISTHMUS_HOST_MEMORY or lower the micro-batch." : "Lower the micro-batch.");
}

void DeviceMemory::report(void* pointer, int64_t bytes) {
  int64_t allocated, reserved;
  {
    std::lock_guard<SpinLock> guard(lock_);
    allocated = pool_.statistics().allocated_bytes.all.current;
    reserved = pool_.statistics().reserved_bytes.all.current;
  }
  c10::reportMemoryUsageToProfiler(pointer, bytes, static_cast<size_t>(allocated),
                                   static_cast<size_t>(reserved), device_);
}

PoolStatistics DeviceMemory::statistics(DriverCalls* calls) {
  std::lock_guard<SpinLock> guard(lock_);
  *calls = calls_;
  return pool_.statistics();
}

void DeviceMemory::reset_peaks() {
  std::lock_guard<SpinLock> guard(lock_);
  pool_.statistics().for_each_counter([](Counter& counter) { counter.reset_peak(); });
}

void DeviceMemory::reset_accumulated() {
  std::lock_guard<SpinLock> guard(lock_);
  pool_.statistics().for_each_counter([](Counter& counter) { counter.reset_accumulated(); });
  calls_.retries = calls_.out_of_memory = 0;
}

int64_t DeviceMemory::host_views() {
  std::lock_guard<SpinLock> guard(lock_);
  return pool_.count_host_views();
}

void release_block(void* block) noexcept {
  auto* const typed = static_cast<Block*>(block);
  typed->home->memory->release(typed);
}

// ---- the devices in use

namespace detail {
// Never deleted: DataPtrs may be freed during static destruction.
std::atomic<DeviceMemory*> device_memories[kMaxDevices];
}  // namespace detail

namespace {

template <typename Function>
void for_each_memory(Function function) {
  for (auto& slot : detail::device_memories) {
    if (DeviceMemory* memory = slot.load()) function(*memory);
  }
}

void before_fork() {
  for_each_memory([](DeviceMemory& memory) { memory.fork_lock(); });
}

void after_fork_in_parent() {
  for_each_memory([](DeviceMemory& memory) { memory.fork_unlock(); });
}

// The child may return blocks it inherited, but must not hand any out: parent and child would share them.
// With no memory in the table, the next allocation asks the driver, which refuses in a child.
void after_fork_in_child() {
  after_fork_in_parent();
  for (auto& slot : detail::device_memories) slot.store(nullptr);
}

}  // namespace

DeviceMemory& open_device_memory(c10::DeviceIndex device) {
  static std::mutex* const mutex = new std::mutex;
  driver();
  check_device(device);
  std::lock_guard<std::mutex> guard(*mutex);
  if (DeviceMemory* memory = detail::device_memories[device].load()) return *memory;
  static const int hooked = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  TORCH_CHECK(hooked == 0, "pthread_atfork failed with error ", hooked);
  auto* const memory = new DeviceMemory(device, open_window(device));
  detail::device_memories[device].store(memory, std::memory_order_release);
  return *memory;
}

}  // namespace isthmus::memory
