#include "memory/device_memory.h"

#include <pthread.h>

#include <algorithm>

#include "core/capture.h"
#include "core/profiler.h"
#include "core/stream.h"
#include "memory/choice.h"
#include "memory/failure_callback.h"
#include "memory/sharing.h"

namespace isthmus::memory {

DeviceMemory::DeviceMemory(c10::DeviceIndex device, const Window* window)
    : device_(kChip, device),
      has_window_(window != nullptr),
      host_offset_(has_window_ ? static_cast<ptrdiff_t>(window->host_base - window->device_base) : 0),
      policy_name_(chosen_policy(device)),
      context_{this, has_window_ ? window->table() : BlockTable{}, chosen_options(device), &statistics_},
      policy_(make_policy(policy_name_, context_)),
      keeps_(policy_->keeps()),
      total_(free_and_total(device).second) {}

Block* DeviceMemory::allocate_slow(int64_t stream, size_t bytes) {
  if (bytes > kRequestLimit) throw_out_of_memory(bytes);
  do {
    if (Block* block = find_slow(stream, bytes)) return block;
  } while (call_failure_callback(device_.index(), bytes));
  throw_out_of_memory(bytes);
}

// Cheapest first: finished work, merged blocks, the driver, then all cached memory. Null if nothing suffices.
Block* DeviceMemory::find_slow(int64_t stream, size_t bytes) {
  collect_finished(/*wait=*/false);
  if (Block* block = take_again(stream, bytes, /*all=*/false)) return block;
  size_t asked = 0;
  if (Block* block = grow(stream, bytes, &asked)) return block;

  {
    std::lock_guard<SpinLock> guard(lock_);
    ++calls_.retries;
  }
  collect_sent();
  collect_finished(/*wait=*/true);
  if (Block* block = take_again(stream, bytes, /*all=*/true)) return block;
  for (const size_t need : {asked, size_t{0}}) {
    release_ranges(need);
    if (Block* block = grow(stream, bytes, &asked)) return block;
  }
  std::lock_guard<SpinLock> guard(lock_);
  if (Block* block = policy().take_any(stream, bytes)) return block;
  return take_last_resort(stream, bytes);
}

Block* DeviceMemory::take_last_resort(int64_t stream, size_t bytes) {
  for (auto& [id, pool] : pools_) {
    if (!pool.is_last_resort || pool.policy.get() == &policy()) continue;
    pool.policy->compact(stream, /*all=*/true);
    if (Block* block = pool.policy->take(stream, bytes)) return block;
    if (Block* block = pool.policy->take_any(stream, bytes)) return block;
  }
  return nullptr;
}

Block* DeviceMemory::take_again(int64_t stream, size_t bytes, bool all) {
  std::lock_guard<SpinLock> guard(lock_);
  if (Block* block = policy().take(stream, bytes)) return block;
  policy().compact(stream, all);
  return policy().take(stream, bytes);
}

// Grows by memory from the driver, or returns null; *asked is the number of bytes that would suffice.
Block* DeviceMemory::grow(int64_t stream, size_t bytes, size_t* asked) {
  collect_garbage(bytes);
  history::Stack stack;
  if (history::is_on()) stack = history::stack_for(history::Action::kSegmentAllocate);
  // No other thread may map or unmap at the addresses of an expandable segment's growth.
  std::unique_lock<std::mutex> one_at_a_time;
  if (context_.options.expandable) one_at_a_time = lock_reclaim();
  Policy* policy;
  Growth growth;
  {
    std::lock_guard<SpinLock> guard(lock_);
    policy = &this->policy();
    growth = policy->growth(stream, bytes);
  }
  *asked = growth.minimum;
  if (growth.release > 0) {
    if (one_at_a_time.owns_lock()) one_at_a_time.unlock();
    release_ranges(growth.release);
  }
  // A segment for this block alone may still fit where a shared one does not.
  bool has_grown = false;
  for (const size_t size : {growth.bytes, growth.minimum}) {
    void* const pointer = size > 0 ? from_driver(*policy, growth, size) : nullptr;
    if (pointer != nullptr) {
      if (history::is_on())
        note(growth.expandable < 0 ? history::Action::kSegmentAllocate : history::Action::kSegmentMap,
             pointer, size, stream, policy->pool(), std::move(stack));
      std::lock_guard<SpinLock> guard(lock_);
      ++calls_.allocated;
      segments_.add({reinterpret_cast<uintptr_t>(pointer), size, stream, policy->pool(), growth.expandable});
      if (Block* block = policy->add(stream, growth, pointer, size, bytes)) return block;
      has_grown = true;
    }
    if (has_grown || growth.minimum == growth.bytes) break;
  }
  if (!has_grown) return nullptr;
  if (one_at_a_time.owns_lock()) one_at_a_time.unlock();
  return grow(stream, bytes, asked);
}

void* DeviceMemory::from_driver(Policy& policy, const Growth& growth, size_t bytes) {
  if (!is_allowed(bytes)) return nullptr;
  use_device(device_.index());
  if (growth.expandable >= 0)
    return expandables_.map(policy, growth, bytes, context_.options.expandable_bytes);
  void* pointer = nullptr;
  const profiler::Call call("chipMalloc");
  const isthmus_status status = driver().memory_allocate(bytes, &pointer);
  if (status == ISTHMUS_OUT_OF_MEMORY) return nullptr;
  check(status, "memory_allocate");
  return pointer;
}

// Whether the process may reserve this many more bytes.
bool DeviceMemory::is_allowed(size_t bytes) {
  std::lock_guard<SpinLock> guard(lock_);
  if (fraction_ >= 1) return true;
  const auto limit = static_cast<int64_t>(fraction_ * static_cast<double>(total_));
  return statistics_.reserved_bytes.all.current + static_cast<int64_t>(bytes) <= limit;
}

// Applies garbage_collection_threshold: frees unused segments before reserving beyond that share of the
// limit.
void DeviceMemory::collect_garbage(size_t bytes) {
  const double threshold = context_.options.collection_threshold;
  if (threshold <= 0) return;
  double excess;
  {
    std::lock_guard<SpinLock> guard(lock_);
    const double limit = threshold * fraction_ * static_cast<double>(total_);
    excess = static_cast<double>(statistics_.reserved_bytes.all.current) + static_cast<double>(bytes) - limit;
  }
  if (excess > 0) release_ranges(static_cast<size_t>(excess));
}

void DeviceMemory::record(Block* block, c10::Stream stream) {
  if (stream.device() == device_ && stream.id() == block->home->stream) return;
  if (history::is_on())
    note(history::Action::kUse, block->pointer, static_cast<size_t>(stream.id()), block->home->stream,
         block->home->policy->pool(), nullptr);
  std::lock_guard<SpinLock> guard(lock_);
  add_stream(recorded_[block], stream);
  block->recorded.store(true, std::memory_order_relaxed);
}

void DeviceMemory::mark_communication(int64_t stream) {
  std::lock_guard<SpinLock> guard(lock_);
  if (std::find(communication_.begin(), communication_.end(), stream) == communication_.end())
    communication_.push_back(stream);
}

// The work of a captured stream runs at each replay: its block must not be reused for other work of the
// graph.
bool DeviceMemory::release_after_capture(Block* block, const std::vector<c10::Stream>& streams) noexcept {
  for (const c10::Stream stream : streams)
    if (const auto capture = capture_of(stream)) {
      capture->on_end([this, block] { release(block); });
      return true;
    }
  return false;
}

void DeviceMemory::release_recorded(Block* block) noexcept {
  std::vector<c10::Stream> streams;
  bool is_communication = false;
  {
    std::lock_guard<SpinLock> guard(lock_);
    const auto found = recorded_.find(block);
    streams = std::move(found->second);
    recorded_.erase(found);
    block->recorded.store(false, std::memory_order_relaxed);
    for (const c10::Stream stream : streams)
      is_communication |=
          stream.device() == device_ &&
          std::find(communication_.begin(), communication_.end(), stream.id()) != communication_.end();
  }
  if (C10_UNLIKELY(capturing()) && release_after_capture(block, streams)) return;
  std::vector<StreamUse> uses = record_uses(streams);
  if (history::is_on() && uses.empty())
    note(history::Action::kFreeCompleted, block->pointer, block->requested, block->home->stream,
         block->home->policy->pool(), nullptr);
  std::lock_guard<SpinLock> guard(lock_);
  if (uses.empty() && !is_communication) return block->home->policy->give(block);
  block->home->policy->wait_begin(block);
  if (uses.empty()) return block->home->policy->wait_done(block, keeps_);
  waiting_.push_back({block, std::move(uses), is_communication});
}

// Frees the released block to the driver, for an allocator that caches nothing.
void DeviceMemory::release_unkept() noexcept {
  try {
    if (!in_bad_fork()) release_ranges(0);
  } catch (const std::exception&) {
    // The device has failed; its next user gets the error.
  }
}

// The owner waits for streams, whose functions may need Python's lock: no thread waits for the owner with it.
std::unique_lock<std::mutex> DeviceMemory::lock_reclaim() {
  std::unique_lock<std::mutex> lock(reclaim_, std::try_to_lock);
  if (!lock.owns_lock()) without_gil([&] { lock.lock(); });
  return lock;
}

void DeviceMemory::collect_finished(bool wait) {
  const std::unique_lock<std::mutex> one_at_a_time = lock_reclaim();
  std::deque<Waiting> waiting;
  {
    std::lock_guard<SpinLock> guard(lock_);
    waiting.swap(waiting_);
  }
  std::deque<Waiting> unfinished;
  std::vector<Waiting> finished;
  for (Waiting& entry : waiting)
    uses_done(entry.uses, wait) ? finished.push_back(std::move(entry))
                                : unfinished.push_back(std::move(entry));

  if (history::is_on()) {
    for (const Waiting& entry : finished)
      note(history::Action::kFreeCompleted, entry.block->pointer, entry.block->requested,
           entry.block->home->stream, entry.block->home->policy->pool(), nullptr);
  }

  std::lock_guard<SpinLock> guard(lock_);
  for (const Waiting& entry : finished)
    entry.block->home->policy->wait_done(entry.block, entry.is_communication && keeps_);
  while (!unfinished.empty()) {
    waiting_.push_front(std::move(unfinished.back()));
    unfinished.pop_back();
  }
}

// Frees at least need bytes of unused memory to the driver, if available; 0: all.
void DeviceMemory::release_ranges(size_t need, Pools pools) {
  history::Stack stack;
  if (history::is_on()) stack = history::stack_for(history::Action::kSegmentFree);
  const std::unique_lock<std::mutex> one_at_a_time = lock_reclaim();
  std::vector<std::pair<Policy*, Range>> ranges;
  {
    std::lock_guard<SpinLock> guard(lock_);
    size_t removed = 0;
    for_each_policy([&](Policy& policy, int64_t pool) {
      if ((need > 0 && removed >= need) || !includes(pools, pool)) return;
      policy.compact(0, /*all=*/true);
      for (const Range& range : policy.remove_free(need > 0 ? need - removed : 0)) {
        ranges.emplace_back(&policy, range);
        segments_.remove(range.pointer, range.bytes);
        removed += range.bytes;
      }
    });
    calls_.freed += static_cast<int64_t>(ranges.size());
    calls_.synchronized += ranges.empty() ? 0 : 1;
  }
  if (ranges.empty()) return;
  // A block may be freed while its stream still works on it; the driver must not take it before that ends.
  synchronize_device(device_.index());
  for (const auto& [policy, range] : ranges) {
    if (history::is_on())
      note(range.expandable < 0 ? history::Action::kSegmentFree : history::Action::kSegmentUnmap,
           range.pointer, range.bytes, range.stream, policy->pool(), stack);
    if (range.expandable >= 0) {
      expandables_.unmap(*policy, range);
    } else {
      const profiler::Call call("chipFree");
      check(driver().memory_free(range.pointer), "memory_free");
    }
  }
}

void DeviceMemory::empty_cache() {
  collect_finished(/*wait=*/true);
  release_ranges(0, Pools::kNotOpen);
  drop_empty_pools();
}

bool DeviceMemory::includes(Pools pools, int64_t pool) const {
  if (pool != 0 && pools_.at(pool).graphs > 0) return false;
  if (pools == Pools::kAll) return true;
  if (pool == 0) return pools == Pools::kNotOpen;
  return pools_.at(pool).users == 0;
}

void DeviceMemory::drop_empty_pools() {
  const std::unique_lock<std::mutex> one_at_a_time =
      lock_reclaim();  // a thread that frees ranges needs their policies
  std::lock_guard<SpinLock> guard(lock_);
  for (auto it = pools_.begin(); it != pools_.end();) {
    bool is_empty = it->second.users == 0;
    it->second.policy->for_each_block(
        [&is_empty](const Block& block) { is_empty &= block.state == BlockState::kUnmapped; });
    it = is_empty ? pools_.erase(it) : std::next(it);
  }
}

void DeviceMemory::step() {
  if (history::is_on()) note(history::Action::kStep, nullptr, 0, 0, 0, nullptr);
  bool to_release;
  {
    std::lock_guard<SpinLock> guard(lock_);
    to_release = policy_->step();
  }
  if (to_release) release_ranges(0);
}

void DeviceMemory::set_fraction(double fraction) {
  TORCH_CHECK_VALUE(fraction > 0 && fraction <= 1, "fraction of a device's memory: ", fraction,
                    " is not in (0, 1]");
  std::lock_guard<SpinLock> guard(lock_);
  fraction_ = fraction;
}

double DeviceMemory::fraction() {
  std::lock_guard<SpinLock> guard(lock_);
  return fraction_;
}

// ---- private pools

namespace detail {
__thread int64_t pool_of_thread ISTHMUS_THREAD_LOCAL_MODEL __attribute__((visibility("hidden"))) = 0;
}

Policy& DeviceMemory::private_policy(int64_t id) {
  const auto found = pools_.find(id);
  return found == pools_.end() ? *policy_ : *found->second.policy;  // the pool is another device's
}

int64_t new_pool_number() {
  static std::atomic<int64_t> last{0};
  return ++last;
}

int64_t DeviceMemory::open_pool(int64_t number, bool is_last_resort, bool of_graph) {
  std::lock_guard<SpinLock> guard(lock_);
  PolicyContext context = context_;
  context.pool = number * kMaxDevices + device_.index();
  context.reserved = &reserved_by_pool_[context.pool];
  PrivatePool& pool = pools_[context.pool];
  ++pool.users;
  pool.graphs += of_graph ? 1 : 0;
  pool.is_last_resort |= is_last_resort;
  if (!pool.policy) pool.policy = make_policy(policy_name_, context);
  return context.pool;
}

void DeviceMemory::close_pool(int64_t id, bool of_graph) {
  {
    std::lock_guard<SpinLock> guard(lock_);
    const auto found = pools_.find(id);
    if (found == pools_.end()) return;
    found->second.graphs -= of_graph ? 1 : 0;
    if (--found->second.users > 0) return;
  }
  release_ranges(0, Pools::kClosed);
  drop_empty_pools();
}

std::optional<Segment> DeviceMemory::segment_of(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  std::lock_guard<SpinLock> guard(lock_);
  const auto& segments = segments_.by_address();
  const auto next = segments.upper_bound(address);
  if (next == segments.begin()) return {};
  const Segment& segment = std::prev(next)->second;
  return address - segment.address < segment.bytes ? std::optional<Segment>(segment) : std::nullopt;
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

void before_fork() {
  for_each_device_memory([](DeviceMemory& memory) { memory.fork_lock(); });
  history::fork_lock();
}

void unlock(bool is_child) {
  history::fork_unlock(is_child);
  for_each_device_memory([](DeviceMemory& memory) { memory.fork_unlock(); });
}

void after_fork_in_parent() { unlock(/*is_child=*/false); }

// The child may free inherited blocks but must not allocate them: parent and child would share them.
// With an empty table, the next allocation goes to the driver, which fails in a child.
void after_fork_in_child() {
  unlock(/*is_child=*/true);
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
