#include "memory/policies/plan.h"

#include <algorithm>
#include <map>
#include <utility>

namespace isthmus::memory {
namespace {

constexpr double kGood = 1.005;  // share of the peak that needs no further attempt

using Order = std::vector<uint32_t>;

struct Placed {
  size_t offset, end_offset;
  uint32_t begin, end;
};
using Shelf = std::vector<Placed>;  // ordered by offset

// The lowest offset from `at` on where the interval overlaps nothing of the shelf.
size_t lowest_fit(const Shelf& shelf, const Interval& each, size_t at) {
  for (const Placed& other : shelf) {
    if (other.end_offset <= at || other.begin >= each.end || each.begin >= other.end) continue;
    if (other.offset >= at + each.size) break;
    at = other.end_offset;
  }
  return at;
}

void put_on(Shelf& shelf, const Placed& placed) {
  const auto where = std::lower_bound(shelf.begin(), shelf.end(), placed.offset,
                                      [](const Placed& a, size_t offset) { return a.offset < offset; });
  shelf.insert(where, placed);
}

// Places each interval, in order, at the lowest offset free during its lifetime. A short interval is compared
// only with those of its time: there is a shelf for every kPeriod requests, and one for all.
class Fitting {
 public:
  explicit Fitting(const std::vector<Interval>& intervals) : intervals_(intervals) {
    uint32_t times = 0;
    for (const Interval& each : intervals) times = std::max(times, each.end);
    shelves_.resize(times / kPeriod + 1);
  }

  Placement run(const Order& order, size_t give_up) {
    Placement placement;
    placement.offsets.resize(intervals_.size());
    // All further ones are short, and the shelf for all is not searched.
    const auto last_long = std::find_if(order.rbegin(), order.rend(),
                                        [this](uint32_t index) { return periods(intervals_[index]) > kFew; });
    size_t long_left = static_cast<size_t>(order.rend() - last_long);
    for (const uint32_t index : order) {
      const Interval& each = intervals_[index];
      const size_t at = fit(each);
      const Placed placed{at, at + each.size, each.begin, each.end};
      placement.offsets[index] = at;
      placement.height = std::max(placement.height, placed.end_offset);
      if (placement.height >= give_up) break;
      if (long_left > 0) {
        --long_left;
        put_on(all_, placed);
      }
      for (uint32_t i = each.begin / kPeriod; i <= (each.end - 1) / kPeriod; ++i) put_on(shelves_[i], placed);
    }
    return placement;
  }

 private:
  static constexpr uint32_t kPeriod = 64, kFew = 3;

  static uint32_t periods(const Interval& each) {
    return (each.end - 1) / kPeriod - each.begin / kPeriod + 1;
  }

  size_t fit(const Interval& each) const {
    if (periods(each) > kFew) return lowest_fit(all_, each, 0);
    size_t at = 0;
    for (bool is_stable = false; !is_stable;) {
      is_stable = true;
      for (uint32_t i = each.begin / kPeriod; i <= (each.end - 1) / kPeriod; ++i) {
        const size_t higher = lowest_fit(shelves_[i], each, at);
        is_stable &= higher == at;
        at = higher;
      }
    }
    return at;
  }

  const std::vector<Interval>& intervals_;
  Shelf all_;
  std::vector<Shelf> shelves_;
};

double life(const Interval& each) { return static_cast<double>(each.end - each.begin); }
double area(const Interval& each) { return static_cast<double>(each.size) * life(each); }
double bytes(const Interval& each) { return static_cast<double>(each.size); }

Order heaviest_first(const std::vector<Interval>& intervals, double (*weight)(const Interval&)) {
  std::vector<std::pair<double, uint32_t>> keys;
  keys.reserve(intervals.size());
  for (uint32_t i = 0; i < intervals.size(); ++i) keys.emplace_back(-weight(intervals[i]), i);
  std::sort(keys.begin(), keys.end());
  Order order;
  order.reserve(keys.size());
  for (const auto& [key, index] : keys) order.push_back(index);
  return order;
}

}  // namespace

size_t peak_of(const std::vector<Interval>& intervals) {
  uint32_t times = 0;
  for (const Interval& each : intervals) times = std::max(times, each.end);
  std::vector<int64_t> changes(times + size_t{1});
  for (const Interval& each : intervals) {
    changes[each.begin] += static_cast<int64_t>(each.size);
    changes[each.end] -= static_cast<int64_t>(each.size);
  }
  int64_t held = 0, peak = 0;
  for (const int64_t change : changes) peak = std::max(peak, held += change);
  return static_cast<size_t>(peak);
}

Placement place_intervals(const std::vector<Interval>& intervals) {
  const auto good = static_cast<size_t>(kGood * static_cast<double>(peak_of(intervals)));
  Placement best;
  best.height = ~size_t{0};
  for (const auto& weight : {area, life, bytes}) {
    Placement placement = Fitting(intervals).run(heaviest_first(intervals, weight), best.height);
    if (placement.height < best.height) best = std::move(placement);
    if (best.height <= good) break;
  }
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
