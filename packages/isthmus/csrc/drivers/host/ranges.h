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

// unit is a power of two.
constexpr uint64_t round_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) & ~(unit - 1); }

class RangeAllocator {
 public:
  explicit RangeAllocator(Range all);

  // Takes a free range of size, aligned to a power of two; returns its begin.
  std::optional<uint64_t> take(uint64_t size, uint64_t alignment);
  // Frees a taken range; returns the free range that now contains it.
  Range give(Range range);
  uint64_t largest() const;

 private:
  void insert(Range range);
  void erase(Range range);

  std::map<uint64_t, uint64_t> by_begin_;            // begin -> end
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  // (size, begin)
};

}  // namespace isthmus::host
