// "raw": no caching. Every request and every free goes to the driver. For measuring a driver, and for tools
// that watch its allocations.
#pragma once

#include <unordered_map>

#include "memory/policy.h"

namespace isthmus::memory {

class RawPolicy final : public Policy {
 public:
  using Policy::Policy;

  bool keeps() const override { return false; }

  Growth growth(int64_t /*stream*/, size_t requested) override {
    const size_t bytes = round_to(requested, kGranule);
    return {bytes, bytes};
  }

  std::vector<Range> remove_free(size_t /*need*/) override {
    std::vector<Range> ranges;
    for (Block* block : free_) {
      ranges.push_back({block->pointer, block->size, -1, block->home->stream});
      count_segment_gone(/*small=*/false, block->size);
      drop_block(block);
    }
    free_.clear();
    return ranges;
  }

  size_t largest_free() const override { return 0; }

 protected:
  Block* find(int64_t /*stream*/, size_t /*requested*/) override { return nullptr; }

  void put(Block* block) override { free_.push_back(block); }

  Block* place(int64_t stream, Range range, size_t /*requested*/) override {
    count_segment(/*small=*/false, range.bytes);
    StreamPool& home = homes_.try_emplace(stream, StreamPool{memory_, this, stream}).first->second;
    return new_block(home, range.pointer, range.bytes, /*small=*/false);
  }

 private:
  std::unordered_map<int64_t, StreamPool> homes_;
  std::vector<Block*> free_;
};

}  // namespace isthmus::memory
