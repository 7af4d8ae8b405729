// Ranges of device memory allocated from the driver.
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
  // Merges with an adjacent range of the same expandable segment.
  void add(const Segment& segment);
  // Removes the range from the segments that contain it.
  void remove(const void* pointer, size_t bytes);

  const std::map<uintptr_t, Segment>& by_address() const { return by_address_; }

 private:
  std::map<uintptr_t, Segment> by_address_;
};

}  // namespace isthmus::memory
