// Policy of a caching allocator: which free memory serves a request, and how much to request from the driver.
//
// Pure bookkeeping. A policy never touches the memory itself, calls no driver and takes no lock: its owner
// (DeviceMemory, or a replay over a trace) holds one around every call.
#pragma once

#include <c10/macros/Macros.h>

#include <array>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "memory/block.h"
#include "memory/statistics.h"

namespace isthmus::memory {

// A range of device addresses allocated from, or to be freed to, the driver.
struct Range {
  void* pointer = nullptr;
  size_t bytes = 0;
  int expandable = -1;  // index of an expandable segment; -1: a segment of its own
  int64_t stream = 0;
};

// A request to the driver. For an expandable segment: memory at that offset of its reserved addresses.
struct Growth {
  size_t bytes = 0;
  size_t minimum = 0;  // enough for the request itself, if the driver lacks `bytes`
  int expandable = -1;
  size_t offset = 0;
  size_t unit = 0;     // bytes in which it is mapped, and later unmapped
  size_t release = 0;  // free bytes to return to the driver first, as by remove_free()
};

// Options in the terms of PYTORCH_ALLOC_CONF; sizes in bytes.
struct PolicyOptions {
  size_t max_split = ~size_t{0};             // larger blocks are never split
  size_t max_rounding = size_t{20} << 20;    // how much larger than its request such a block may be
  std::array<size_t, 16> divisions{};        // steps of sizes in [2^20+i, 2^21+i); 0: none
  bool expandable = false;                   // the owner has virtual memory and the user wants it
  size_t mapping_granule = size_t{2} << 20;  // granule of mapped memory
  size_t expandable_bytes = 0;               // addresses that the owner reserves for an expandable segment
  double collection_threshold = 0;           // share of the limit above which unused segments are freed
};

// Parses "key:value,key:[value,...]". Keys of other devices are ignored unless is_ours.
PolicyOptions parse_options(const std::string& text, bool is_ours);

// Sets options that the policy of that name does not read back to their defaults, and returns their names.
std::vector<std::string> drop_unread_options(const std::string& policy, PolicyOptions& options);

// The memory that a policy manages.
struct PolicyContext {
  DeviceMemory* memory = nullptr;
  BlockTable table;
  PolicyOptions options;
  PoolStatistics* statistics = nullptr;  // several policies of one device count together
  Tally* reserved = nullptr;             // tally of this policy alone, if wanted
  int64_t pool = 0;                      // id of a MemPool
};

class Policy {
 public:
  explicit Policy(const PolicyContext& context)
      : memory_(context.memory),
        options_(context.options),
        statistics_(*context.statistics),
        reserved_(context.reserved),
        pool_(context.pool),
        table_(context.table) {}
  virtual ~Policy() = default;
  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;

  // A block of at least requested > 0 bytes for work on stream; null if memory must grow: growth().
  Block* take(int64_t stream, size_t requested) {
    Block* block = find(stream, requested);
    if (C10_UNLIKELY(block == nullptr)) {
      if (cooling_.empty()) return nullptr;
      put_cooled();
      block = find(stream, requested);
      if (block == nullptr) return nullptr;
    }
    count_use(block, requested);
    return block;
  }

  // Frees a used block.
  void give(Block* block) {
    count_return(block);
    count_inactive(block);
    put(block);
  }
  // Waits in two steps, when another stream still works on it.
  void wait_begin(Block* block) {
    count_return(block);
    block->state = BlockState::kWaiting;
  }
  // is_last: reused only when no other free memory serves.
  void wait_done(Block* block, bool is_last);

  // The request to the driver after take() has failed.
  virtual Growth growth(int64_t stream, size_t requested) = 0;
  // Adds the driver's memory for growth, bytes at pointer, and takes a block from it. Null if another
  // request has taken free memory that growth() counted on: call growth() again.
  Block* add(int64_t stream, const Growth& growth, void* pointer, size_t bytes, size_t requested) {
    Block* block = place(stream, {pointer, bytes, growth.expandable}, requested);
    if (C10_LIKELY(block != nullptr)) count_use(block, requested);
    return block;
  }

  // Merges blocks kept separate for speed. `all`: at any cost; else only if many are kept.
  virtual void compact(int64_t /*stream*/, bool /*all*/) {}
  // The last resort before out of memory: a block much larger than the request.
  Block* take_any(int64_t stream, size_t requested) {
    Block* block = find_any(stream, requested);
    if (block != nullptr) count_use(block, requested);
    return block;
  }
  // Removes free ranges to return to the driver, at least `need` bytes if available; 0: all.
  // Compact first.
  virtual std::vector<Range> remove_free(size_t need) = 0;
  // Whether the policy caches free memory; if not, remove_free() follows every free.
  virtual bool keeps() const { return true; }

  // The boundary between two training steps, from which a policy may learn. Returns whether all free ranges
  // are to go back to the driver now.
  virtual bool step() { return false; }

  virtual size_t largest_free() const = 0;
  int64_t pool() const { return pool_; }

  // Every block, used or free, for snapshots.
  template <typename Function>
  void for_each_block(Function function) const {
    for (const auto& slab : slabs_)
      for (size_t i = 0; i < kSlab; ++i)
        if (slab[i].size != 0) function(slab[i]);
  }

 protected:
  // A free block, taken out of its list: of at least requested bytes, or null. State kUsed.
  virtual Block* find(int64_t stream, size_t requested) = 0;
  virtual Block* find_any(int64_t /*stream*/, size_t /*requested*/) { return nullptr; }
  // Takes a block back into the lists.
  virtual void put(Block* block) = 0;
  // Takes a block whose last use is over; put() is delayed until other free memory is short.
  virtual void cool(Block* /*block*/) {}
  // Fresh memory: returns the block to use; the rest is free.
  virtual Block* place(int64_t stream, Range range, size_t requested) = 0;

  Block* new_block(StreamPool& home, void* pointer, size_t size, bool small);
  void drop_block(Block* block);
  void list_block(Block* block) { table_.set(block->pointer, block); }  // finds it by its address from now on
  void put_cooled();

  void count_segment(bool small, size_t bytes);
  void count_segment_gone(bool small, size_t bytes);
  void count_reserved(bool small, int64_t bytes);  // counts a segment that grows (or shrinks: negative)
  // Counts a free block more (sign 1) or less (-1) in a partly used segment; whole segments do not count.
  void count_inactive_split(const Block* block, int sign);

  // The entry of stream, created at its first use.
  template <typename Pool>
  Pool& pool_of(std::unordered_map<int64_t, std::unique_ptr<Pool>>& pools, int64_t stream) {
    std::unique_ptr<Pool>& pool = pools[stream];
    if (pool == nullptr) {
      pool = std::make_unique<Pool>();
      static_cast<StreamPool&>(*pool) = {memory_, this, stream};
    }
    return *pool;
  }

  DeviceMemory* const memory_;
  const PolicyOptions options_;
  PoolStatistics& statistics_;

 private:
  static constexpr size_t kSlab = 256;

  void count_use(Block* block, size_t requested) {
    block->state = BlockState::kUsed;
    block->requested = requested;
    const auto size = static_cast<int64_t>(block->size);
    statistics_.allocation.add(block->small, 1);
    statistics_.allocated_bytes.add(block->small, size);
    statistics_.requested_bytes.add(block->small, static_cast<int64_t>(requested));
    statistics_.active.add(block->small, 1);
    statistics_.active_bytes.add(block->small, size);
    if (C10_UNLIKELY(block->size >= options_.max_split)) statistics_.oversize_allocations.add(1);
  }
  void count_return(Block* block) {
    statistics_.allocation.subtract(block->small, 1);
    statistics_.allocated_bytes.subtract(block->small, static_cast<int64_t>(block->size));
    statistics_.requested_bytes.subtract(block->small, static_cast<int64_t>(block->requested));
    if (C10_UNLIKELY(block->size >= options_.max_split)) statistics_.oversize_allocations.subtract(1);
  }
  void count_inactive(Block* block) {
    statistics_.active.subtract(block->small, 1);
    statistics_.active_bytes.subtract(block->small, static_cast<int64_t>(block->size));
  }

  Tally* const reserved_;
  const int64_t pool_;
  const BlockTable table_;
  std::vector<Block*> cooling_;
  // Block objects live as long as the process: a DataPtr may be freed during static destruction.
  std::vector<std::unique_ptr<Block[]>> slabs_;
  Block* unused_ = nullptr;
};

// Makes the policy with one of policy_names(); throws c10::ValueError for another name.
std::unique_ptr<Policy> make_policy(const std::string& name, const PolicyContext& context);
std::vector<std::string> policy_names();
// Throws c10::ValueError with `where` in front.
void check_policy_name(const std::string& name, const std::string& where);

}  // namespace isthmus::memory
