// "planned", the default: assumes that a training step repeats the requests of the one before it.
//
// Large requests (above 1 MiB) of a step are recorded for each stream, with their lifetimes. At the step's
// end plan.h places them into one arena of little more than their peak, requested from the driver. The n-th
// request of a following step takes the n-th slot, an existing block, after checking the slots that had its
// addresses before: so a wrong prediction costs memory, never correctness. Steps of
// one structure and different sizes are planned for the largest of each.
//
// When steps differ, no plan is used: a region of little more than a step's peak serves by best fit, and is
// empty at the step's end. The arena of an abandoned plan becomes such a region. Two equal steps enable plans
// again, more of them after each abandoned plan. Arena and region are not requested while live blocks from
// before prevent other segments from being freed, unless they do so in every step.
//
// Unexpected requests (the first step, excess over the region) get their own segments, rounded to 2 MiB and
// reused for the same size; idle ones are freed to the driver when a new one would exceed the peak of bytes
// in use. Thus long-lived blocks never leave holes. If too many would be freed, large segments are split as
// PyTorch splits them. Small requests are kept in bins by size.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "memory/policies/track.h"
#include "memory/policies/tree.h"

namespace isthmus::memory {

class PlannedPolicy final : public TreePolicy {
 public:
  explicit PlannedPolicy(const PolicyContext& context) : TreePolicy(context, /*with_bins=*/true) {}

  Growth growth(int64_t stream, size_t requested) override;
  Block* find_any(int64_t stream, size_t requested) override;
  std::vector<Range> remove_free(size_t need) override;
  size_t largest_free() const override;
  bool step() override;

 protected:
  Block* find(int64_t stream, size_t requested) override;
  void put(Block* block) override;
  void cool(Block* block) override;
  Block* place(int64_t stream, Range range, size_t requested) override;
  void list_free(Block* block) override;
  void unlist_free(Block* block) override;

 private:
  static size_t segment_bytes(size_t size) {
    return size < kOwnSegmentLimit ? kLargeSegment : round_to(size, kOwnSegmentRound);
  }

  Track& track(int64_t stream) { return C10_LIKELY(stream == 0) ? default_ : other_track(stream); }
  Track& other_track(int64_t stream);
  template <typename Function>
  void for_each_track(Function function) {
    function(default_);
    for (auto& [stream, track] : others_) function(*track);
  }

  Block* find_large(Track& track, size_t size);
  Block* follow(Track& track, size_t size);
  Block* hold(Track& track, const Slot& slot);
  Block* find_online(Track& track, size_t size);
  bool may_give(const Block* block, size_t size) const;
  void note(Track& track, size_t size, Block* block);

  void abandon(Track& track);
  void close_request(Track& track, Block* block);

  bool asks(const Track& track, size_t size) const;
  bool affords(const Track& track);
  void refuse(Track& track);

  void open_step(Track& track);
  void lay_plan(Track& track);
  void set_region(Track& track, Block* first, size_t bytes);
  void forget_region(Track& track);
  FreeBins& bins_of(const Block* block);
  void make_blocks(Track& track);
  void drop_blocks(Track& track);
  void dissolve(Track& track);
  size_t excess(size_t bytes);
  static size_t most_tolerated(size_t bytes, double share);
  size_t remove_large(size_t need, std::vector<Range>& ranges);

  Track default_{0};
  std::unordered_map<int64_t, std::unique_ptr<Track>> others_;
  size_t highest_ = 0;  // peak of bytes in use
  int64_t releases_left_ = kReleases;
  int64_t steps_ = 0;

  static constexpr int64_t kReleases = 4096 * 64;
};

}  // namespace isthmus::memory
