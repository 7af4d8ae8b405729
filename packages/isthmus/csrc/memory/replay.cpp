#include "memory/replay.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <map>

namespace isthmus::memory {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uintptr_t kBase = uintptr_t{1} << 40;  // never dereferenced, and not addresses of any device
constexpr size_t kAlign = size_t{2} << 20;

// A driver's addresses, allocated first fit and freed.
class Driver {
 public:
  explicit Driver(size_t capacity) : capacity_(capacity) {}

  void* allocate(size_t bytes, bool is_expandable) {
    if (!is_expandable && used_ + bytes > capacity_) return nullptr;
    uintptr_t at = kBase;
    for (const auto& [begin, size] : ranges_) {
      if (begin - at >= bytes) break;
      at = round_to(begin + size, kAlign);
    }
    ranges_.emplace(at, bytes);
    if (!is_expandable) used_ += bytes;
    return reinterpret_cast<void*>(at);
  }
  bool map(size_t bytes) {
    if (used_ + bytes > capacity_) return false;
    used_ += bytes;
    return true;
  }
  void free(const Range& range) {
    used_ -= range.bytes;
    if (range.expandable < 0) ranges_.erase(reinterpret_cast<uintptr_t>(range.pointer));
  }
  size_t used() const { return used_; }

 private:
  const size_t capacity_;
  size_t used_ = 0;
  std::map<uintptr_t, size_t> ranges_;
};

class Replay {
 public:
  Replay(const std::string& policy, const PolicyOptions& options, size_t capacity, const Trace& trace,
         bool with_spans)
      : trace_(trace),
        with_spans_(with_spans),
        driver_(capacity),
        blocks_(static_cast<size_t>(trace.ids)),
        sizes_(static_cast<size_t>(trace.ids)) {
    PolicyOptions with_expandables = options;
    with_expandables.expandable_bytes = capacity;
    policy_ = make_policy(policy, {nullptr, BlockTable{}, with_expandables, &statistics_});
    begins_.resize(with_spans ? blocks_.size() : 0);
  }

  ReplayResult run() {
    const auto start = Clock::now();
    for (event_ = 0; event_ < trace_.count; ++event_) {
      switch (static_cast<EventKind>(trace_.kind[event_])) {
        case EventKind::kAllocate:
          if (!allocate()) {
            result_.out_of_memory = static_cast<int64_t>(event_);
            return finish(start);
          }
          break;
        case EventKind::kFree:
          release();
          break;
        case EventKind::kStep:
          step();
          break;
        case EventKind::kUse:
          break;  // the free waits for it; no accounting here
        default:
          TORCH_CHECK_VALUE(false, "event ", event_, " is of an unknown kind");
      }
    }
    return finish(start);
  }

 private:
  ReplayResult finish(Clock::time_point start) {
    result_.seconds = std::chrono::duration<double>(Clock::now() - start - driver_time_).count();
    (steps_ == 0 ? result_.live_first : result_.live) =
        std::max(steps_ == 0 ? result_.live_first : result_.live, peak_live_);
    (steps_ == 0 ? result_.reserved_first : result_.reserved) = std::max(
        steps_ == 0 ? result_.reserved_first : result_.reserved, statistics_.reserved_bytes.all.peak);
    if (with_spans_) close_spans();
    return std::move(result_);
  }

  size_t id() const {
    const int32_t id = trace_.id[event_];
    TORCH_CHECK_VALUE(id >= 0 && id < trace_.ids, "event ", event_, ": allocation ", id, " does not exist");
    return static_cast<size_t>(id);
  }

  bool allocate() {
    const size_t index = id();
    const int64_t stream = trace_.stream[event_];
    TORCH_CHECK_VALUE(static_cast<uint64_t>(trace_.size[event_]) <= kRequestLimit, "event ", event_,
                      ": an allocation of ", trace_.size[event_], " bytes is larger than any device");
    TORCH_CHECK_VALUE(blocks_[index] == nullptr && trace_.size[event_] > 0, "event ", event_, ": allocation ",
                      index, " exists already, or has no size");
    const auto size = static_cast<size_t>(trace_.size[event_]);
    Block* block = policy_->take(stream, size);
    if (C10_UNLIKELY(block == nullptr)) block = allocate_slow(stream, size);
    if (block == nullptr) return false;
    blocks_[index] = block;
    sizes_[index] = static_cast<int64_t>(size);
    live_ += static_cast<int64_t>(size);
    if (live_ > peak_live_) peak_live_ = live_;
    if (C10_UNLIKELY(with_spans_)) begins_[index] = static_cast<int64_t>(event_);
    return true;
  }

  void release() {
    const size_t index = id();
    Block* const block = blocks_[index];
    TORCH_CHECK_VALUE(block != nullptr, "event ", event_, ": allocation ", index, " is not held");
    if (C10_UNLIKELY(with_spans_)) add_span(index);
    blocks_[index] = nullptr;
    live_ -= sizes_[index];
    policy_->give(block);
    if (!policy_->keeps()) remove_free(0);
  }

  // Like DeviceMemory::allocate_slow(), without waiting.
  Block* allocate_slow(int64_t stream, size_t size) {
    policy_->compact(stream, /*all=*/false);
    if (Block* block = policy_->take(stream, size)) return block;
    size_t asked = 0;
    if (Block* block = grow(stream, size, &asked)) return block;
    policy_->compact(stream, /*all=*/true);
    if (Block* block = policy_->take(stream, size)) return block;
    for (const size_t need : {asked, size_t{0}}) {
      remove_free(need);
      if (Block* block = grow(stream, size, &asked)) return block;
    }
    return policy_->take_any(stream, size);
  }

  Block* grow(int64_t stream, size_t size, size_t* asked) {
    const Growth growth = policy_->growth(stream, size);
    *asked = growth.minimum;
    if (growth.release > 0) remove_free(growth.release);
    for (size_t bytes : {growth.bytes, growth.minimum}) {
      if (bytes == 0) break;
      void* pointer = from_driver(growth, bytes);
      if (pointer != nullptr) return policy_->add(stream, growth, pointer, bytes, size);
      if (growth.minimum == growth.bytes) break;
    }
    return nullptr;
  }

  void* from_driver(const Growth& growth, size_t bytes) {
    const auto start = Clock::now();
    void* pointer = nullptr;
    if (growth.expandable < 0) {
      pointer = driver_.allocate(bytes, /*is_expandable=*/false);
    } else if (driver_.map(bytes)) {
      while (expandables_.size() <= static_cast<size_t>(growth.expandable))
        expandables_.push_back(static_cast<char*>(driver_.allocate(kExpandable, /*is_expandable=*/true)));
      pointer = expandables_[static_cast<size_t>(growth.expandable)] + growth.offset;
    }
    if (pointer != nullptr) {
      ++result_.growths;
      if (with_spans_) open_segments_[pointer] = {static_cast<int64_t>(event_), bytes};
    }
    driver_time_ += Clock::now() - start;
    return pointer;
  }

  void remove_free(size_t need) {
    for (const Range& range : policy_->remove_free(need)) {
      const auto start = Clock::now();
      ++result_.releases;
      driver_.free(range);
      if (with_spans_) close_segment(range);
      driver_time_ += Clock::now() - start;
    }
  }

  void step() {
    const int64_t reserved = statistics_.reserved_bytes.all.peak;
    if (steps_++ == 0) {
      result_.live_first = peak_live_;
      result_.reserved_first = reserved;
    } else {
      result_.live = std::max(result_.live, peak_live_);
      result_.reserved = std::max(result_.reserved, reserved);
    }
    if (policy_->step()) {
      policy_->compact(0, /*all=*/true);
      remove_free(0);
    }
    // The new step's peaks start from the bytes held now.
    peak_live_ = live_;
    statistics_.for_each_counter([](Counter& counter) { counter.reset_peak(); });
  }

  int64_t address(const void* pointer) const {
    return static_cast<int64_t>(reinterpret_cast<uintptr_t>(pointer) - kBase);
  }

  void add_span(size_t index) {
    const Block* block = blocks_[index];
    result_.blocks.push_back({begins_[index], static_cast<int64_t>(event_), address(block->pointer),
                              static_cast<int64_t>(block->size), static_cast<int64_t>(index)});
  }

  // Parts of segments: a range of an expandable segment may be freed in pieces.
  void close_segment(const Range& range) {
    auto* const begin = static_cast<char*>(range.pointer);
    auto* const end = begin + range.bytes;
    auto it = open_segments_.lower_bound(begin);
    if (it != open_segments_.begin()) {
      const auto before = std::prev(it);
      if (static_cast<char*>(before->first) + before->second.second > begin) it = before;
    }
    while (it != open_segments_.end() && it->first < static_cast<void*>(end)) {
      const auto [pointer, opened] = *it;
      it = open_segments_.erase(it);
      auto* const from = static_cast<char*>(pointer);
      auto* const to = from + opened.second;
      add_segment_span(std::max(from, begin), std::min(to, end), opened.first);
      if (from < begin) open_segments_[from] = {opened.first, static_cast<size_t>(begin - from)};
      if (to > end) open_segments_[end] = {opened.first, static_cast<size_t>(to - end)};
    }
  }

  void add_segment_span(char* from, char* to, int64_t opened) {
    result_.segments.push_back({opened, static_cast<int64_t>(event_), address(from), to - from, -1});
  }

  void close_spans() {
    for (size_t index = 0; index < blocks_.size(); ++index)
      if (blocks_[index] != nullptr) add_span(index);
    for (const auto& [pointer, opened] : open_segments_)
      add_segment_span(static_cast<char*>(pointer), static_cast<char*>(pointer) + opened.second,
                       opened.first);
  }

  static constexpr size_t kExpandable = size_t{1} << 42;  // addresses cost nothing here

  const Trace& trace_;
  const bool with_spans_;
  Driver driver_;
  PoolStatistics statistics_;
  std::unique_ptr<Policy> policy_;
  std::vector<Block*> blocks_;  // indexed by id
  std::vector<int64_t> sizes_, begins_;
  std::vector<char*> expandables_;
  std::map<void*, std::pair<int64_t, size_t>> open_segments_;
  size_t event_ = 0;
  int64_t steps_ = 0, live_ = 0, peak_live_ = 0;
  Clock::duration driver_time_{0};
  ReplayResult result_;
};

}  // namespace

ReplayResult replay(const std::string& policy, const PolicyOptions& options, size_t capacity,
                    const Trace& trace, bool with_spans) {
  return Replay(policy, options, capacity, trace, with_spans).run();
}

}  // namespace isthmus::memory
