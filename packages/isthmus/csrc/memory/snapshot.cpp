#include "memory/snapshot.h"

#include <algorithm>

#include "memory/device_memory.h"

namespace isthmus::memory {
namespace {

struct Found {
  BlockView view;
  bool is_small;
};

bool is_active(BlockState state) { return state == BlockState::kUsed || state == BlockState::kWaiting; }

SegmentView view_of(const Segment& segment, const std::vector<Found>& found) {
  SegmentView view{segment, false, {}};
  const uintptr_t end = segment.address + segment.bytes;
  uintptr_t at = segment.address;
  const auto fill = [&](uintptr_t to) {
    if (to > at) view.blocks.push_back({at, to - at, 0, BlockState::kFree});
  };
  auto it = std::lower_bound(found.begin(), found.end(), at, [](const Found& each, uintptr_t address) {
    return each.view.address < address;
  });
  for (; it != found.end() && it->view.address < end; ++it) {
    view.is_small |= it->is_small;
    if (!is_active(it->view.state)) continue;
    fill(it->view.address);
    view.blocks.push_back(it->view);
    at = it->view.address + it->view.size;
  }
  fill(end);
  return view;
}

}  // namespace

std::vector<SegmentView> DeviceMemory::snapshot() {
  std::vector<Found> found;
  std::vector<Segment> segments;
  {
    std::lock_guard<SpinLock> guard(lock_);
    for (const auto& [address, segment] : segments_.by_address()) segments.push_back(segment);
    for_each_policy([&found](const Policy& policy, int64_t) {
      policy.for_each_block([&found](const Block& block) {
        found.push_back(
            {{reinterpret_cast<uintptr_t>(block.pointer), block.size, block.requested, block.state},
             block.small});
      });
    });
  }
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return a.view.address < b.view.address; });
  std::vector<SegmentView> views;
  views.reserve(segments.size());
  for (const Segment& segment : segments) views.push_back(view_of(segment, found));
  return views;
}

}  // namespace isthmus::memory
