// Events and statistics of a device's memory, for the profiler, the history and Python.
#include "memory/device_memory.h"

namespace isthmus::memory {

void DeviceMemory::note(history::Action action, const void* pointer, size_t size, int64_t stream,
                        int64_t pool, history::Stack stack) noexcept {
  history::note(action, device_.index(), pointer, static_cast<int64_t>(size), stream, pool, std::move(stack));
}

void DeviceMemory::note_snapshot() {
  DriverCalls calls;
  const auto active = static_cast<size_t>(statistics(&calls).active_bytes.all.current);
  note(history::Action::kSnapshot, nullptr, active, 0, 0, nullptr);
}

void DeviceMemory::tell_allocated(const Block* block) {
  if (history::is_on())
    note(history::Action::kAllocate, block->pointer, block->requested, block->home->stream,
         block->home->policy->pool(), history::stack_for(history::Action::kAllocate));
  tell_profiler(block->pointer, static_cast<int64_t>(block->size));
}

// Called before another thread can get the block.
void DeviceMemory::tell_returned(const Block* block) noexcept {
  if (history::is_on()) {
    history::Stack stack = history::stack_for(history::Action::kFreeRequested);
    const auto tell = [&](history::Action action) {
      note(action, block->pointer, block->requested, block->home->stream, block->home->policy->pool(), stack);
    };
    tell(history::Action::kFreeRequested);
    if (!block->recorded.load(std::memory_order_relaxed)) tell(history::Action::kFreeCompleted);
  }
  tell_profiler(block->pointer, -static_cast<int64_t>(block->size));
}

void DeviceMemory::tell_profiler(void* pointer, int64_t bytes) {
  if (!c10::memoryProfilingEnabled()) return;
  int64_t allocated, reserved;
  {
    std::lock_guard<SpinLock> guard(lock_);
    allocated = statistics_.allocated_bytes.all.current;
    reserved = statistics_.reserved_bytes.all.current;
  }
  c10::reportMemoryUsageToProfiler(pointer, bytes, static_cast<size_t>(allocated),
                                   static_cast<size_t>(reserved), device_);
}

PoolStatistics DeviceMemory::statistics(DriverCalls* calls) {
  std::lock_guard<SpinLock> guard(lock_);
  *calls = calls_;
  return statistics_;
}

std::map<int64_t, Tally> DeviceMemory::reserved_by_pool() {
  std::lock_guard<SpinLock> guard(lock_);
  return reserved_by_pool_;
}

void DeviceMemory::reset_peaks() {
  std::lock_guard<SpinLock> guard(lock_);
  for_each_counter([](Counter& counter) { counter.reset_peak(); });
}

void DeviceMemory::reset_accumulated() {
  std::lock_guard<SpinLock> guard(lock_);
  for_each_counter([](Counter& counter) { counter.reset_accumulated(); });
  calls_.retries = calls_.out_of_memory = 0;
}

int64_t DeviceMemory::host_views() {
  std::lock_guard<SpinLock> guard(lock_);
  int64_t count = 0;
  for_each_policy([&count](const Policy& policy, int64_t) {
    policy.for_each_block(
        [&count](const Block& block) { count += block.host_view.load(std::memory_order_relaxed) ? 1 : 0; });
  });
  return count;
}

}  // namespace isthmus::memory
