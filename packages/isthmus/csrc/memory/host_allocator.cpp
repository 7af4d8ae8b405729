// Pinned host memory: cached, and reused once the streams that use it have passed.
#include <ATen/core/CachingHostAllocator.h>

#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "core/profiler.h"
#include "core/runtime.h"
#include "core/stream.h"
#include "memory/memory.h"
#include "memory/stream_use.h"

namespace isthmus::memory {
namespace {

constexpr size_t kSmallestBlock = 512;

// Rounds to a multiple of an eighth of the power of two below, so that batches of nearly equal size share
// blocks and at most an eighth is wasted.
size_t round_size(size_t bytes) {
  if (bytes <= kSmallestBlock) return kSmallestBlock;
  size_t step = kSmallestBlock / 8;
  while (step * 16 <= bytes) step *= 2;
  return (bytes + step - 1) / step * step;
}

using Clock = std::chrono::steady_clock;

int64_t microseconds_since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
}

struct HostBlock {
  char* pointer = nullptr;
  size_t size = 0;
  std::vector<c10::Stream> streams;  // that used it since its allocation
};

struct WaitingBlock {
  HostBlock* block;
  std::vector<StreamUse> uses;
};

void release_pinned(void* pointer) noexcept;

// The context of a DataPtr is its address. mutex_ is never held while the driver is called.
class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    driver();  // initialises the driver: pinning may be the first use of the chip
    if (bytes == 0) return {nullptr, nullptr, &release_pinned, c10::kCPU};
    TORCH_CHECK_WITH(OutOfMemoryError, bytes < (size_t{1} << 62), "cannot pin ", bytes,
                     " bytes of host memory");
    collect_finished(/*wait=*/false);
    const size_t size = round_size(bytes);
    void* pointer = take(size);
    if (pointer == nullptr) pointer = grow(size);
    return {pointer, pointer, &release_pinned, c10::kCPU};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release_pinned; }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  void release(void* pointer) {
    // The driver must not be called in a child process, so the child's copy of the lists is useless.
    if (in_bad_fork()) return;
    std::vector<c10::Stream> streams;
    HostBlock* block;
    {
      std::lock_guard<std::shared_mutex> guard(mutex_);
      block = find(pointer);
      streams.swap(block->streams);
    }
    std::vector<StreamUse> uses = record_uses(streams);
    std::lock_guard<std::shared_mutex> guard(mutex_);
    if (uses.empty()) {
      cache(block);
    } else {
      waiting_.push_back({block, std::move(uses)});
    }
  }

  bool owns(const void* pointer) {
    std::shared_lock<std::shared_mutex> guard(mutex_);
    return find(pointer) != nullptr;
  }

  void record(const void* pointer, c10::Stream stream) {
    std::lock_guard<std::shared_mutex> guard(mutex_);
    if (HostBlock* block = find(pointer)) add_stream(block->streams, stream);
  }

  // Functions that at::HostAllocator adds.
  bool record_event(void* pointer, void*, c10::Stream stream) override {
    record(pointer, stream);
    return true;
  }
  at::HostStats get_stats() override {
    std::shared_lock<std::shared_mutex> guard(mutex_);
    at::HostStats stats = stats_;
    stats.num_host_alloc = stats.host_alloc_time.count;
    stats.num_host_free = stats.host_free_time.count;
    return stats;
  }
  void reset_accumulated_stats() override {
    std::lock_guard<std::shared_mutex> guard(mutex_);
    for_each_stat([](auto& stat) { stat.reset_accumulated(); });
  }
  void reset_peak_stats() override {
    std::lock_guard<std::shared_mutex> guard(mutex_);
    for_each_stat([](auto& stat) { stat.reset_peak(); });
  }

  void empty_cache() override {
    if (!driver_initialized() || in_bad_fork()) return;
    collect_finished(/*wait=*/true);
    std::vector<char*> pointers;
    {
      std::lock_guard<std::shared_mutex> guard(mutex_);
      for (auto& [size, blocks] : free_) {
        for (HostBlock* block : blocks) {
          pointers.push_back(block->pointer);
          stats_.allocations.decrease(1);
          stats_.allocated_bytes.decrease(block->size);
          blocks_.erase(block->pointer);
        }
      }
      free_.clear();
    }
    for (char* pointer : pointers) {
      const Clock::time_point start = Clock::now();
      {
        const profiler::Call call("chipFreeHost");
        check(driver().host_free(pointer), "host_free");
      }
      const int64_t took = microseconds_since(start);
      std::lock_guard<std::shared_mutex> guard(mutex_);
      stats_.host_free_time.increase(took);
    }
  }

 private:
  template <typename Function>
  void for_each_stat(Function function) {
    for (at::Stat* stat :
         {&stats_.active_requests, &stats_.active_bytes, &stats_.allocations, &stats_.allocated_bytes})
      function(*stat);
    for (at::DurationStat* stat : {&stats_.host_alloc_time, &stats_.host_free_time}) function(*stat);
  }

  void* take(size_t size) {
    std::lock_guard<std::shared_mutex> guard(mutex_);
    std::vector<HostBlock*>& free = free_[size];
    if (free.empty()) return nullptr;
    HostBlock* const block = free.back();
    free.pop_back();
    return mark_used(*block);
  }

  static isthmus_status allocate_from_driver(size_t size, void** pointer) {
    const profiler::Call call("chipMallocHost");
    return driver().host_allocate(size, pointer);
  }

  void* grow(size_t size) {
    use_device(current_device());
    void* pointer = nullptr;
    Clock::time_point start = Clock::now();
    isthmus_status status = allocate_from_driver(size, &pointer);
    if (status == ISTHMUS_OUT_OF_MEMORY) {
      empty_cache();
      start = Clock::now();
      status = allocate_from_driver(size, &pointer);
    }
    TORCH_CHECK_WITH(OutOfMemoryError, status != ISTHMUS_OUT_OF_MEMORY, "out of pinned host memory: asked ",
                     size, " bytes (reserved ", get_stats().allocated_bytes.current,
                     "): ", driver().last_error(), ". Lower num_workers or prefetch_factor, or do not pin.");
    check(status, "host_allocate");
    const int64_t took = microseconds_since(start);
    std::lock_guard<std::shared_mutex> guard(mutex_);
    stats_.host_alloc_time.increase(took);
    stats_.allocations.increase(1);
    stats_.allocated_bytes.increase(size);
    HostBlock& block = blocks_[static_cast<char*>(pointer)];
    block.pointer = static_cast<char*>(pointer);
    block.size = size;
    return mark_used(block);
  }

  void* mark_used(const HostBlock& block) {
    stats_.active_requests.increase(1);
    stats_.active_bytes.increase(block.size);
    return block.pointer;
  }

  // Caches a block that no stream uses any more. The caller holds the lock.
  void cache(HostBlock* block) {
    stats_.active_requests.decrease(1);
    stats_.active_bytes.decrease(block->size);
    free_[block->size].push_back(block);
  }

  // The block that holds pointer, or null.
  HostBlock* find(const void* pointer) {
    auto* const address = static_cast<char*>(const_cast<void*>(pointer));
    auto found = blocks_.upper_bound(address);
    if (found == blocks_.begin()) return nullptr;
    HostBlock& block = (--found)->second;
    return address < block.pointer + block.size ? &block : nullptr;
  }

  void collect_finished(bool wait) {
    std::deque<WaitingBlock> waiting;
    {
      std::lock_guard<std::shared_mutex> guard(mutex_);
      waiting.swap(waiting_);
    }
    if (waiting.empty()) return;
    std::vector<bool> done(waiting.size());
    for (size_t i = 0; i < waiting.size(); ++i) done[i] = uses_done(waiting[i].uses, wait);
    std::lock_guard<std::shared_mutex> guard(mutex_);
    for (size_t i = 0; i < waiting.size(); ++i) {
      if (done[i]) {
        cache(waiting[i].block);
      } else {
        waiting_.push_back(std::move(waiting[i]));
      }
    }
  }

  std::shared_mutex mutex_;
  std::map<char*, HostBlock> blocks_;  // keyed by address; all blocks from the driver
  std::unordered_map<size_t, std::vector<HostBlock*>> free_;
  std::deque<WaitingBlock> waiting_;
  at::HostStats stats_;
};

PinnedAllocator& instance() {
  // Never deleted: tensors may outlive statics.
  static PinnedAllocator* const allocator = new PinnedAllocator;
  return *allocator;
}

void release_pinned(void* pointer) noexcept { instance().release(pointer); }

}  // namespace

void register_allocators() {
  c10::SetAllocator(kChip, &device_allocator());
  at::setHostAllocator(kChip, &instance());
}

c10::Allocator& pinned_allocator() { return instance(); }

bool is_pinned(const void* pointer) noexcept {
  if (!driver_initialized() || in_bad_fork()) return false;
  if (instance().owns(pointer)) return true;
  // Pinned by others, through the driver.
  isthmus_pointer_attributes attributes{};
  return driver_table()->pointer_attributes(pointer, &attributes) == ISTHMUS_OK &&
         attributes.kind == ISTHMUS_MEMORY_PINNED;
}

void record_pinned(const void* pointer, c10::Stream stream) { instance().record(pointer, stream); }

void host_empty_cache() { instance().empty_cache(); }

}  // namespace isthmus::memory
