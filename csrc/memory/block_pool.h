// Which parts of one device's memory are in use: bins, best fit, splitting, coalescing, counters.
//
// Pure bookkeeping. It never touches the memory itself, calls no driver and takes no lock: the caller holds
// one around every call. Sizes follow the public policy of PyTorch's CUDA caching allocator.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

namespace isthmus::memory {

constexpr size_t kGranule = 512;                 // every block starts and ends on a multiple of it
constexpr size_t kSmallLimit = size_t{1} << 20;  // blocks up to here come from small segments, through bins
constexpr size_t kSmallSegment = size_t{2} << 20;
constexpr size_t kLargeSegment = size_t{20} << 20;
constexpr size_t kOwnSegmentLimit = size_t{10} << 20;  // requests from here on get a segment of their own
constexpr size_t kOwnSegmentRound = size_t{2} << 20;
constexpr size_t kRequestLimit = size_t{1} << 62;  // above it rounding could overflow

class DeviceMemory;
struct StreamBlocks;

enum class BlockState : uint8_t {
  kUsed,     // held by a DataPtr
  kWaiting,  // returned, but work on another stream may still use it
  kBinned,   // free, kept whole in a bin
  kFree,     // free, in a tree; neighbours of this state are merged
};

// A piece of a segment. One cache line, so that a return touches no other.
struct alignas(64) Block {
  void* pointer = nullptr;  // device address
  size_t size = 0;
  size_t requested = 0;
  Block* previous = nullptr;  // neighbours in the segment
  Block* next = nullptr;
  Block* below = nullptr;  // next in the bin, or in the list of unused Block objects
  StreamBlocks* home = nullptr;
  BlockState state = BlockState::kUsed;
  bool small = false;                  // of a small segment
  std::atomic<bool> host_view{false};  // held by a CPU DataPtr; written by the holder without the lock
  std::atomic<bool> recorded{false};   // DeviceMemory knows streams that use it besides its own

  bool whole_segment() const { return previous == nullptr && next == nullptr; }
};

struct BySize {
  bool operator()(const Block* a, const Block* b) const {
    return a->size != b->size ? a->size < b->size : a->pointer < b->pointer;
  }
};
using FreeTree = std::set<Block*, BySize>;

// The free blocks of one stream.
struct StreamBlocks {
  DeviceMemory* memory = nullptr;
  int64_t stream = 0;
  std::array<Block*, kSmallLimit / kGranule + 1> bins{};  // by size; last in, first out, for warm caches
  FreeTree small, large;
};

// From address to block, for memory that the CPU can address; entries is null without it.
struct BlockTable {
  uintptr_t base = 0;
  Block** entries = nullptr;

  void set(const void* pointer, Block* block) const {
    if (entries != nullptr) entries[(reinterpret_cast<uintptr_t>(pointer) - base) / kGranule] = block;
  }
};

struct Counter {
  int64_t current = 0, peak = 0, freed = 0, start = 0;

  void add(int64_t n) {
    current += n;
    if (current > peak) peak = current;
  }
  void subtract(int64_t n) {
    current -= n;
    freed += n;
  }
  void set(int64_t n) { n >= current ? add(n - current) : subtract(current - n); }
  int64_t allocated() const { return current + freed - start; }
  void reset_peak() { peak = current; }
  void reset_accumulated() {
    freed = 0;
    start = current;
  }
};

// One quantity for all blocks, for those of small segments, and for those of large ones.
struct Tally {
  Counter all, small, large;

  void add(bool is_small, int64_t n) {
    all.add(n);
    (is_small ? small : large).add(n);
  }
  void subtract(bool is_small, int64_t n) {
    all.subtract(n);
    (is_small ? small : large).subtract(n);
  }
};

// active_* count used and waiting blocks. inactive_split_* are free parts of segments in use; they are
// sampled when a block is split and when they are read, so their peak is a lower bound.
struct PoolStatistics {
  Tally allocation, allocated_bytes, requested_bytes, active, active_bytes;
  Tally segment, reserved_bytes, inactive_split, inactive_split_bytes;

  template <typename Function>
  void for_each_counter(Function function) {
    for (Tally* tally : {&allocation, &allocated_bytes, &requested_bytes, &active, &active_bytes, &segment,
                         &reserved_bytes, &inactive_split, &inactive_split_bytes}) {
      for (Counter* counter : {&tally->all, &tally->small, &tally->large}) function(*counter);
    }
  }
};

class BlockPool {
 public:
  BlockPool(DeviceMemory* memory, BlockTable table);

  static size_t round_size(size_t requested) { return (requested + kGranule - 1) & ~(kGranule - 1); }
  // What to ask of the driver for a block of size bytes.
  static size_t segment_size(size_t size);

  StreamBlocks& of_stream(int64_t stream) { return stream == 0 ? default_ : of_other_stream(stream); }

  // A block of at least requested > 0 bytes, or null when a segment is missing.
  Block* take(StreamBlocks& blocks, size_t requested) {
    const size_t size = round_size(requested);
    if (size <= kSmallLimit) {
      Block*& top = blocks.bins[size / kGranule];
      if (Block* block = top) {
        top = block->below;
        return use(block, requested);
      }
    }
    return carve(size <= kSmallLimit ? blocks.small : blocks.large, size, requested);
  }

  // The same from a block for large requests, of which it keeps up to 1 MiB: better than none.
  Block* take_large(StreamBlocks& blocks, size_t requested) {
    return carve(blocks.large, round_size(requested), requested);
  }

  // Adds a segment of bytes at pointer and takes a block from it.
  Block* add_segment(StreamBlocks& blocks, void* pointer, size_t bytes, size_t requested);

  // Returns a used block, or, with wait_done(), a waiting one.
  void give(Block* block) {
    subtract_allocated(block);
    subtract_active(block);
    put_away(block);
  }
  void wait_begin(Block* block);
  void wait_done(Block* block);

  // Empties the bins into the trees, where neighbours merge; the second only if it may spare a segment.
  void flush_bins();
  void flush_bins_if_many(StreamBlocks& blocks);

  // Takes wholly free segments out; the caller returns them to the driver. Flush first.
  std::vector<void*> remove_free_segments();

  PoolStatistics& statistics();
  size_t largest_free() const;
  int64_t count_host_views() const;

 private:
  StreamBlocks& of_other_stream(int64_t stream);
  Block* carve(FreeTree& tree, size_t size, size_t requested);
  void split(Block* block, size_t size);
  void put_away(Block* block);
  void insert_free(Block* block);
  void erase_free(Block* block);
  void join(Block* left, Block* right);
  void flush(StreamBlocks& blocks);
  Block* new_block(StreamBlocks& blocks, void* pointer, size_t size, bool small);
  void drop_block(Block* block);

  Block* use(Block* block, size_t requested) {
    block->state = BlockState::kUsed;
    block->requested = requested;
    statistics_.allocation.add(block->small, 1);
    statistics_.allocated_bytes.add(block->small, static_cast<int64_t>(block->size));
    statistics_.requested_bytes.add(block->small, static_cast<int64_t>(requested));
    statistics_.active.add(block->small, 1);
    statistics_.active_bytes.add(block->small, static_cast<int64_t>(block->size));
    return block;
  }
  void subtract_allocated(Block* block) {
    statistics_.allocation.subtract(block->small, 1);
    statistics_.allocated_bytes.subtract(block->small, static_cast<int64_t>(block->size));
    statistics_.requested_bytes.subtract(block->small, static_cast<int64_t>(block->requested));
  }
  void subtract_active(Block* block) {
    statistics_.active.subtract(block->small, 1);
    statistics_.active_bytes.subtract(block->small, static_cast<int64_t>(block->size));
  }

  StreamBlocks default_;
  std::unordered_map<int64_t, std::unique_ptr<StreamBlocks>> others_;
  BlockTable table_;
  PoolStatistics statistics_;

  struct Totals {
    int64_t blocks = 0;  // of any state
    int64_t tree_bytes = 0;
    int64_t free_segments = 0, free_segment_bytes = 0;  // of the trees' blocks, whole segments
  };
  Totals small_totals_, large_totals_;
  Totals& totals(bool small) { return small ? small_totals_ : large_totals_; }

  // Block objects live as long as the process: a DataPtr may be freed during static destruction.
  std::vector<std::unique_ptr<Block[]>> slabs_;
  Block* unused_ = nullptr;
};

inline void BlockPool::put_away(Block* block) {
  if (block->small) {
    Block*& top = block->home->bins[block->size / kGranule];
    block->state = BlockState::kBinned;
    block->below = top;
    top = block;
  } else {
    insert_free(block);
  }
}

}  // namespace isthmus::memory
