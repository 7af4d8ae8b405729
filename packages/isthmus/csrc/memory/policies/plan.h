// Placement of memory blocks with known lifetimes: the two-dimensional packing used by "planned".
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace isthmus::memory {

// A block live from request `begin` of a step until request `end`, which may reuse its memory.
struct Interval {
  size_t size = 0;
  uint32_t begin = 0, end = 0;
};

// Peak of live bytes: the lower bound of any placement.
size_t peak_of(const std::vector<Interval>& intervals);

struct Placement {
  std::vector<size_t> offsets;  // indexed by interval
  size_t height = 0;
};

// Offsets such that no two blocks live at the same time overlap. Several greedy orders are tried,
// the largest in size and life first, until one is within 0.1 % of the peak; the lowest is returned. The work
// grows with the square of the number of intervals: 5000 take some 3 ms an order.
Placement place_intervals(const std::vector<Interval>& intervals);

// Predecessors of every interval: the last holders of its addresses before it, if a step is followed by an
// equal one. Freed blocks need not be examined again.
struct Predecessors {
  std::vector<uint32_t> first;  // starts of the lists: interval i has list[first[i]] up to list[first[i + 1]]
  std::vector<uint32_t> list;
};
Predecessors find_predecessors(const std::vector<Interval>& intervals, const std::vector<size_t>& offsets);

}  // namespace isthmus::memory
