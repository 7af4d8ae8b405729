// Best-fit allocation of ranges of integers, with coalescing. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace isthmus::host {

struct Range {
  uint64_t begin, end;
  uint64_t size() const { return end - begin; }
};

class RangeAllocator {
 public:
  explicit RangeAllocator(Range all);

  // The begin of a free range of size, a multiple of alignment (a power of two), now taken.
  std::optional<uint64_t> take(uint64_t size, uint64_t alignment);
  // Gives a taken range back; returns the free range that it is now part of.
  Range give(Range range);
  uint64_t largest() const;

 private:
  void insert(Range range);
  void erase(Range range);

  std::map<uint64_t, uint64_t> by_begin_;            // begin -> end
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  // (size, begin)
};

}  // namespace isthmus::host
