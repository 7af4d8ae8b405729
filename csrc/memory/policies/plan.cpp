#include "memory/policies/plan.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

namespace isthmus::memory {
namespace {

struct Placed {
  size_t offset, end_offset;
  uint32_t begin, end;
};

// First fit: each interval, in this order, at the lowest offset that is free for all of its life.
Placement place_in_order(const std::vector<Interval>& intervals, const std::vector<uint32_t>& order,
                         size_t give_up) {
  Placement placement;
  placement.offsets.resize(intervals.size());
  std::vector<Placed> placed;  // by offset
  placed.reserve(intervals.size());
  for (const uint32_t index : order) {
    const Interval& each = intervals[index];
    size_t at = 0;
    for (const Placed& other : placed) {
      if (other.begin >= each.end || each.begin >= other.end || other.end_offset <= at) continue;
      if (other.offset >= at + each.size) break;
      at = other.end_offset;
    }
    placement.offsets[index] = at;
    placement.height = std::max(placement.height, at + each.size);
    if (placement.height >= give_up) break;
    const auto where = std::lower_bound(placed.begin(), placed.end(), at,
                                        [](const Placed& a, size_t offset) { return a.offset < offset; });
    placed.insert(where, {at, at + each.size, each.begin, each.end});
  }
  return placement;
}

}  // namespace

size_t peak_of(const std::vector<Interval>& intervals) {
  std::map<uint32_t, int64_t> changes;
  for (const Interval& each : intervals) {
    changes[each.begin] += static_cast<int64_t>(each.size);
    changes[each.end] -= static_cast<int64_t>(each.size);
  }
  int64_t held = 0, peak = 0;
  for (const auto& [time, change] : changes) peak = std::max(peak, held += change);
  return static_cast<size_t>(peak);
}

Placement place_intervals(const std::vector<Interval>& intervals) {
  using Weight = std::function<double(const Interval&)>;
  const std::vector<Weight> weights = {
      [](const Interval& each) { return static_cast<double>(each.end - each.begin); },
      [](const Interval& each) { return static_cast<double>(each.size); },
      [](const Interval& each) {
        return static_cast<double>(each.size) * static_cast<double>(each.end - each.begin);
      },
  };
  const auto good = static_cast<size_t>(1.001 * static_cast<double>(peak_of(intervals)));
  Placement best;
  best.height = ~size_t{0};
  for (const Weight& weight : weights) {
    std::vector<uint32_t> order(intervals.size());
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return weight(intervals[a]) > weight(intervals[b]); });
    Placement placement = place_in_order(intervals, order, best.height);
    if (placement.height < best.height) best = std::move(placement);
    if (best.height <= good) break;
  }
  if (intervals.empty()) best.height = 0;
  return best;
}

Predecessors find_predecessors(const std::vector<Interval>& intervals, const std::vector<size_t>& offsets) {
  struct Piece {
    size_t end;
    uint32_t holder;
  };
  std::map<size_t, Piece> surface;  // who held each address last
  Predecessors result;
  const auto cover = [&](uint32_t index, bool note) {
    const size_t begin = offsets[index], end = begin + intervals[index].size;
    const size_t noted = result.list.size();
    auto it = surface.lower_bound(begin);
    if (it != surface.begin() && std::prev(it)->second.end > begin) --it;
    while (it != surface.end() && it->first < end) {
      const auto [from, piece] = *it;
      it = surface.erase(it);
      if (from < begin) surface[from] = {begin, piece.holder};
      if (piece.end > end) it = surface.emplace(end, Piece{piece.end, piece.holder}).first;
      const auto start = result.list.begin() + static_cast<ptrdiff_t>(noted);
      if (note && std::find(start, result.list.end(), piece.holder) == result.list.end())
        result.list.push_back(piece.holder);
    }
    surface[begin] = {end, index};
  };
  const auto count = static_cast<uint32_t>(intervals.size());
  for (uint32_t index = 0; index < count; ++index) cover(index, /*note=*/false);
  for (uint32_t index = 0; index < count; ++index) {
    result.first.push_back(static_cast<uint32_t>(result.list.size()));
    cover(index, /*note=*/true);
  }
  result.first.push_back(static_cast<uint32_t>(result.list.size()));
  return result;
}

}  // namespace isthmus::memory
