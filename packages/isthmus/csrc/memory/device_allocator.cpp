#include <c10/core/impl/COW.h>

#include "core/capture.h"
#include "core/host_work.h"
#include "core/profiler.h"
#include "core/stream.h"
#include "memory/device_memory.h"
#include "memory/memory.h"
#include "memory/sharing.h"

namespace isthmus::memory {
namespace {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;

Stat to_stat(const Counter& counter) {
  Stat stat;
  stat.current = counter.current;
  stat.peak = counter.peak;
  stat.allocated = counter.allocated();
  stat.freed = counter.freed;
  return stat;
}

StatArray to_stats(const Tally& tally) {
  return {to_stat(tally.all), to_stat(tally.small), to_stat(tally.large)};  // in the order of StatType
}

// The block that a DataPtr holds; null if it holds none. That of lazy clones is searched for.
Block* block_of(const c10::DataPtr& data) {
  if (data.get_deleter() == &release_block) return static_cast<Block*>(data.get_context());
  Block* found = nullptr;
  if (c10::impl::cow::is_cow_data_ptr(data))
    device_memory(data.device().index()).for_each_block([&](Block& block, int64_t) {
      if (block.pointer == data.get() && block.state == BlockState::kUsed) found = &block;
    });
  return found;
}

// Overwrites what an earlier tensor left: a late reader of that gets NaN.
void overwrite(void* data, size_t bytes, c10::Stream stream) {
  check(driver().set_async(data, 0xff, bytes, stream_handle(stream)), "overwrite freed memory");
  mark_busy(stream);
}

// The context of a DataPtr is its Block, not its address: not every driver can map one to the other.
// So raw_deleter() stays null, which tells callers that raw_allocate() is not supported.
class ChipAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Stream stream = current_stream(current_device());
    c10::DataPtr data = memory::allocate(bytes, stream);
    if (C10_UNLIKELY(asked_for_host_work()) && bytes > 0 && is_asynchronous() && !capturing())
      overwrite(data.get(), bytes, stream);
    return data;
  }

  // Decides whether PyTorch's materialize_cow() can serve; see dispatch/operators/lazy_clone.cpp.
  bool is_simple_data_ptr(const c10::DataPtr& data) const override {
    return data.get_context() == data.get();
  }

  // Both are on one device. Ordered after the current stream's work; done on return.
  void copy_data(void* to, const void* from, size_t bytes) const override {
    if (bytes == 0) return;
    isthmus_pointer_attributes attributes{};
    check(driver().pointer_attributes(to, &attributes), "pointer_attributes");
    TORCH_INTERNAL_ASSERT(attributes.kind == ISTHMUS_MEMORY_DEVICE,
                          "copy_data: the destination is not chip memory");
    const c10::Stream stream = current_stream(static_cast<c10::DeviceIndex>(attributes.device));
    {
      using profiler::Work;
      const isthmus_stream handle = stream_handle(stream);
      const Work work(profiler::Kind::kCopy, "Memcpy DtoD", stream, Work::By::kDriver, bytes);
      capture_copy(stream, to, from, bytes, ISTHMUS_DEVICE_TO_DEVICE);
      check(driver().copy_async(to, from, bytes, ISTHMUS_DEVICE_TO_DEVICE, handle), "copy");
      mark_busy(stream);
    }
    if (!capture_of(stream)) synchronize_stream(stream);
  }

  bool initialized() override { return driver_initialized(); }

  void emptyCache(c10::MempoolId_t) override {
    collect_sent();
    for_each_device_memory([](DeviceMemory& memory) { memory.empty_cache(); });
  }

  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    // Memory from elsewhere (another process, another library) is kept alive by its owner.
    if (Block* const block = block_of(data)) block->home->memory->record(block, stream);
  }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    check_device(device);
    c10::CachingDeviceAllocator::DeviceStats stats;
    DeviceMemory* const memory = used_device_memory(device);
    if (memory == nullptr) return stats;
    DriverCalls calls;
    const PoolStatistics pool = memory->statistics(&calls);
    stats.allocation = to_stats(pool.allocation);
    stats.segment = to_stats(pool.segment);
    stats.active = to_stats(pool.active);
    stats.inactive_split = to_stats(pool.inactive_split);
    stats.allocated_bytes = to_stats(pool.allocated_bytes);
    stats.reserved_bytes = to_stats(pool.reserved_bytes);
    stats.active_bytes = to_stats(pool.active_bytes);
    stats.inactive_split_bytes = to_stats(pool.inactive_split_bytes);
    stats.requested_bytes = to_stats(pool.requested_bytes);
    stats.num_alloc_retries = calls.retries;
    stats.num_ooms = calls.out_of_memory;
    stats.num_device_alloc = calls.allocated;
    stats.num_device_free = calls.freed;
    stats.num_sync_all_streams = calls.synchronized;
    for (const auto& [id, tally] : memory->reserved_by_pool()) {
      const auto number = static_cast<c10::CaptureId_t>(pool_number(id));
      stats.reserved_bytes_by_private_pools[{0, number}] = to_stats(tally);
    }
    stats.max_split_size = static_cast<int64_t>(memory->options().max_split);
    stats.oversize_allocations = to_stat(pool.oversize_allocations);
    stats.oversize_segments = to_stat(pool.oversize_segments);
    return stats;
  }

  void resetAccumulatedStats(c10::DeviceIndex device) override {
    check_device(device);
    if (DeviceMemory* memory = used_device_memory(device)) memory->reset_accumulated();
  }

  void resetPeakStats(c10::DeviceIndex device) override {
    check_device(device);
    if (DeviceMemory* memory = used_device_memory(device)) memory->reset_peaks();
  }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    check_device(device);
    return free_and_total(device);
  }
};

}  // namespace

c10::DeviceAllocator& device_allocator() {
  static ChipAllocator* const instance = new ChipAllocator;  // never deleted: storages may outlive statics
  return *instance;
}

c10::DataPtr allocate(size_t bytes, c10::Stream stream) {
  if (bytes == 0) return {nullptr, nullptr, &release_block, stream.device()};
  Block* const block = device_memory(stream.device_index()).allocate(stream.id(), bytes);
  note_capture(block->pointer, bytes);
  return {block->pointer, block, &release_block, stream.device()};
}

int64_t host_view_blocks() {
  int64_t count = 0;
  for_each_device_memory([&count](DeviceMemory& memory) { count += memory.host_views(); });
  return count;
}

}  // namespace isthmus::memory
