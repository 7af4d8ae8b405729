#include "ranges.h"

#include <iterator>

namespace isthmus::host {

RangeAllocator::RangeAllocator(Range all) { insert(all); }

std::optional<uint64_t> RangeAllocator::take(uint64_t size, uint64_t alignment) {
  for (auto it = by_size_.lower_bound({size, 0}); it != by_size_.end(); ++it) {
    const Range free{it->second, it->second + it->first};
    const uint64_t begin = (free.begin + alignment - 1) & ~(alignment - 1);
    if (begin > free.end || free.end - begin < size) continue;
    erase(free);
    insert({free.begin, begin});
    insert({begin + size, free.end});
    return begin;
  }
  return std::nullopt;
}

Range RangeAllocator::give(Range range) {
  auto next = by_begin_.lower_bound(range.begin);
  if (next != by_begin_.end() && next->first == range.end) {
    const Range after{next->first, next->second};
    range.end = after.end;
    erase(after);
    next = by_begin_.lower_bound(range.begin);
  }
  if (next != by_begin_.begin()) {
    const auto previous = std::prev(next);
    if (previous->second == range.begin) {
      const Range before{previous->first, previous->second};
      range.begin = before.begin;
      erase(before);
    }
  }
  insert(range);
  return range;
}

uint64_t RangeAllocator::largest() const { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }

void RangeAllocator::insert(Range range) {
  if (range.size() == 0) return;
  by_begin_.emplace(range.begin, range.end);
  by_size_.emplace(range.size(), range.begin);
}

void RangeAllocator::erase(Range range) {
  by_begin_.erase(range.begin);
  by_size_.erase({range.size(), range.begin});
}

}  // namespace isthmus::host
