// "planned", the default: what a training step asked for, the next one asks for again.
//
// Large requests (above 1 MiB) of a step are recorded, stream by stream, with how long each is held. At the
// step's end they are placed by plan.h into one arena of little more than their peak, and the driver is asked
// for it. The n-th request of a following step takes the n-th slot, a block that exists already, after a look
// at the slots that had the addresses before: so a wrong prediction costs memory, never correctness. Steps of
// one structure and different sizes are planned for the largest of each.
//
// What is not expected (the first step, a longer sequence, an evaluation) is served by segments of its own,
// rounded to 2 MiB and reused for the same size; idle ones go back to the driver when a new one would exceed
// what has been in use at a time. Thus long-lived blocks never leave holes. Where too many would go back,
// large segments are split as PyTorch splits them. Small requests are kept in bins by size.
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

 private:
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
  Block* find_online(int64_t stream, size_t size);
  bool may_give(const Block* block, size_t size) const;
  void note(Track& track, size_t size, Block* block);

  void abandon(Track& track);
  void close_request(Track& track, Block* block);

  void open_step(Track& track);
  void make_blocks(Track& track);
  void drop_blocks(Track& track);
  void dissolve(Track& track);
  size_t excess(size_t bytes);
  size_t remove_large(size_t need, std::vector<Range>& ranges);

  Track default_{0};
  std::unordered_map<int64_t, std::unique_ptr<Track>> others_;
  size_t highest_ = 0;  // bytes in use at a time, ever
  int64_t releases_left_ = kReleases;
  int64_t steps_ = 0;

  static constexpr int64_t kReleases = 4096 * 64;
};

}  // namespace isthmus::memory
