// "bf": best fit, as TensorFlow's BFC. The smallest sufficient free block serves a request, small or
// large; it is split if that saves half of it or 128 MiB. Each region is twice as large as the last
// one. (Bins by power of two would find the same block: the tree is ordered by size.)
#pragma once

#include <algorithm>

#include "memory/policies/tree.h"

namespace isthmus::memory {

class BestFitPolicy final : public TreePolicy {
 public:
  explicit BestFitPolicy(const PolicyContext& context) : TreePolicy(context, /*with_bins=*/false) {}

  Growth growth(int64_t /*stream*/, size_t requested) override {
    const size_t minimum = round_to(requested, kRegionRound);
    const size_t bytes = std::max(minimum, next_region_);
    next_region_ = std::min(next_region_ * 2, kRegionLimit);
    return {bytes, minimum};
  }

 protected:
  bool is_small(size_t /*size*/) const override { return false; }
  bool splits(const Block* block, size_t size) const override {
    const size_t rest = block->size - size;
    return rest > 0 && (rest >= size || rest >= kSplitAlways);
  }

 private:
  static constexpr size_t kRegionRound = size_t{2} << 20;
  static constexpr size_t kRegionLimit = size_t{1} << 30;
  static constexpr size_t kSplitAlways = size_t{128} << 20;
  size_t next_region_ = kRegionRound;
};

}  // namespace isthmus::memory
