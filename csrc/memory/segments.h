// The device memory that the driver has given, range by range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace isthmus::memory {

struct Segment {
  uintptr_t address = 0;
  size_t bytes = 0;
  int64_t stream = 0;
  int64_t pool = 0;     // a MemPool's id; 0: the common one
  int expandable = -1;  // index of an expandable segment; -1: an allocation of its own
};

class Segments {
 public:
  // Joins what follows on a range of the same expandable segment.
  void add(const Segment& segment);
  // Cuts the range out of the segments that have it.
  void remove(const void* pointer, size_t bytes);

  const std::map<uintptr_t, Segment>& by_address() const { return by_address_; }

 private:
  std::map<uintptr_t, Segment> by_address_;
};

}  // namespace isthmus::memory
