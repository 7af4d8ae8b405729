// What a device's memory tells: events, statistics, and why there is none left.
#include <cstdio>

#include "memory/device_memory.h"

namespace isthmus::memory {
namespace {

// In the largest unit that leaves a one before the point: small sizes never read as none.
std::string with_unit(uint64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return std::to_string(bytes) + " bytes";
  double size = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; size >= 1024 && unit + 1 < std::size(kUnits); ++unit) size /= 1024;
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f %s", size, kUnits[unit]);
  return text;
}

// What to do about a lack of memory of which the process may have no more than a share.
std::string remedy(uint64_t asked, uint64_t free_bytes, uint64_t total_bytes, double share) {
  std::string text;
  if (share < 1)
    text = "This process may reserve " +
           with_unit(static_cast<uint64_t>(share * static_cast<double>(total_bytes))) +
           " (set_per_process_memory_fraction). ";
  if (share < 1 && asked <= free_bytes) return text + "Raise the fraction or lower the micro-batch.";
  if (std::string(driver().name) == "host") return text + "Set ISTHMUS_HOST_MEMORY or lower the micro-batch.";
  return text + "Lower the micro-batch.";
}

}  // namespace

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

// Before anybody else can have the block.
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

void DeviceMemory::throw_out_of_memory(size_t bytes) {
  const auto [free_bytes, total_bytes] = free_and_total(device_.index());
  int64_t reserved, active;
  size_t largest;
  double share;
  {
    std::lock_guard<SpinLock> guard(lock_);
    ++calls_.out_of_memory;
    reserved = statistics_.reserved_bytes.all.current;
    active = statistics_.active_bytes.all.current;
    largest = policy().largest_free();
    share = fraction_;
  }
  if (history::is_on())
    note(history::Action::kOutOfMemory, reinterpret_cast<void*>(free_bytes), bytes, 0, 0,
         history::stack_for(history::Action::kOutOfMemory));
  history::tell_out_of_memory(device_.index(), static_cast<int64_t>(bytes), active,
                              static_cast<int64_t>(free_bytes));
  c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(bytes), static_cast<size_t>(active),
                                   static_cast<size_t>(reserved), device_);
  TORCH_CHECK_WITH(OutOfMemoryError, false, "chip ", int{device_.index()}, " is out of memory: asked ",
                   with_unit(bytes), ", ", with_unit(free_bytes), " free of ", with_unit(total_bytes),
                   " (reserved ", with_unit(static_cast<uint64_t>(reserved)), ", of which ",
                   with_unit(static_cast<uint64_t>(reserved - active)), " unused, largest free block ",
                   with_unit(largest), "). ", remedy(bytes, free_bytes, total_bytes, share));
}

}  // namespace isthmus::memory
