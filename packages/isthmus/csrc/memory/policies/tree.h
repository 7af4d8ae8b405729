// Best fit over trees of free blocks with splitting and merging, shared by "torch" and "planned".
#pragma once

#include <array>
#include <set>
#include <unordered_map>

#include "memory/policy.h"

namespace isthmus::memory {

// The public constants of PyTorch's CUDA caching allocator.
constexpr size_t kSmallLimit = size_t{1} << 20;  // blocks up to here come from small segments
constexpr size_t kSmallSegment = size_t{2} << 20;
constexpr size_t kLargeSegment = size_t{20} << 20;
constexpr size_t kOwnSegmentLimit = size_t{10} << 20;  // requests from here on get their own segment
constexpr size_t kOwnSegmentRound = size_t{2} << 20;

using FreeTree = std::set<Block*, BySize>;

// The free blocks of one stream.
struct TreePool : StreamPool {
  std::array<Block*, kSmallLimit / kGranule + 1> bins{};  // by size; last in, first out: warm caches
  FreeTree small, large;
};

class TreePolicy : public Policy {
 public:
  // with_bins: small blocks are kept whole, by size, until compact().
  TreePolicy(const PolicyContext& context, bool with_bins);

  Growth growth(int64_t stream, size_t requested) override;
  void compact(int64_t stream, bool all) override;
  std::vector<Range> remove_free(size_t need) override;
  size_t largest_free() const override;

 protected:
  Block* find(int64_t stream, size_t requested) override;
  Block* find_any(int64_t stream, size_t requested) override;
  void put(Block* block) override;
  Block* place(int64_t stream, Range range, size_t requested) override;

  // Number of bytes that serve a request.
  virtual size_t round_size(size_t requested) const { return round_to(requested, kGranule); }
  // Whether it comes from the small trees and segments.
  virtual bool is_small(size_t size) const { return size <= kSmallLimit; }
  // Whether a free block that is large enough may serve size bytes; whether the rest is split off.
  virtual bool serves(const Block* /*block*/, size_t /*size*/) const { return true; }
  virtual bool splits(const Block* block, size_t size) const;

  TreePool& pool(int64_t stream) { return stream == 0 ? default_ : pool_of(others_, stream); }
  Block* carve(FreeTree& tree, size_t size);
  void split(Block* block, size_t size);
  Block* cut(Block* block, size_t size);  // returns the rest, which is in no list
  void absorb(Block* block);              // its next neighbour, which is in no list
  void insert_free(Block* block);
  void erase_free(Block* block);
  // Index of free blocks by size; a policy may use another.
  virtual void list_free(Block* block) { tree_of(block).insert(block); }
  virtual void unlist_free(Block* block) { tree_of(block).erase(block); }
  Block* segment_block(TreePool& pool, Range range, bool small);
  void remove_segment(Block* block);
  size_t whole_bytes() const { return whole_bytes_; }  // bytes of large segments that are free as a whole
  template <typename Function>
  void for_each_pool(Function function) {
    function(default_);
    for (auto& [stream, pool] : others_) function(*pool);
  }

 private:
  void flush(TreePool& pool);
  FreeTree& tree_of(Block* block);

  void count_free(const Block* block, int sign);

  const bool with_bins_;
  TreePool default_;
  std::unordered_map<int64_t, std::unique_ptr<TreePool>> others_;
  size_t binned_bytes_ = 0;
  size_t whole_bytes_ = 0;
};

}  // namespace isthmus::memory
