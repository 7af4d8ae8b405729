// "lifetime": two pools, for long-lived blocks and for others, as recorded in the last step.
//
// After AscendSpeed's memory fragmentation optimisation, without its hooks in the model. Large requests
// (above 1 MiB) of a step are numbered by a clock; size, time of allocation and time of freeing are
// recorded. A request is looked up in the last step: the nearest entry of its size, from its own
// time backwards. One that was held beyond the forward pass (after it: beyond the step) is *long*, any other
// *short*. A size missing in the last step is looked up in earlier steps with new sizes. In
// the first step all of the forward pass is long and the rest short. The forward pass ends when bytes in use
// fall to nine tenths of the step's peak.
//
// A long request takes only a free segment of exactly its size, rounded to 2 MiB, else a new one. A short one
// takes the best fit of the short pool, split as PyTorch splits it; after the forward pass also idle memory
// of the long pool, except that segments of 1.8 GB are not split there if 20 MiB or more would be left.
// Before the chip is called full, any memory serves any request.
#pragma once

#include <map>
#include <vector>

#include "memory/policies/tree.h"

namespace isthmus::memory {

class LifetimePolicy final : public TreePolicy {
 public:
  explicit LifetimePolicy(const PolicyContext& context) : TreePolicy(context, /*with_bins=*/true) {}

  Growth growth(int64_t stream, size_t requested) override;
  Block* find_any(int64_t stream, size_t requested) override;
  bool step() override;

 protected:
  Block* find(int64_t stream, size_t requested) override;
  void put(Block* block) override;
  void cool(Block* block) override;
  Block* place(int64_t stream, Range range, size_t requested) override;

 private:
  using Clock = uint32_t;
  static constexpr Clock kNever = ~Clock{0};

  struct Life {
    size_t size;
    Clock end;
    Block* block;  // while it is held
  };
  // Requests of one step by size, in order: when each was made and how long it was held.
  struct Step {
    std::map<size_t, std::vector<std::pair<Clock, Clock>>> lives;
    Clock forward_end = 0;
  };

  TreePool& long_pool(int64_t stream);
  bool is_long(size_t size) const;
  static const std::pair<Clock, Clock>* nearest(const Step& step, size_t size, Clock now);
  Block* find_long(int64_t stream, size_t size);
  Block* find_short(int64_t stream, size_t size);
  void note(Block* block, size_t size);
  void close(Block* block);

  std::vector<Life> lives_;  // lives of this step; the clock is their number
  size_t held_ = 0, peak_ = 0;
  bool in_forward_ = true, has_new_sizes_ = false;
  Clock forward_end_ = 0;
  Step last_;
  std::vector<Step> history_;
};

}  // namespace isthmus::memory
