// Virtual memory of expandable segments: address ranges that are mapped as they grow.
#pragma once

#include <c10/core/Device.h>

#include <map>
#include <mutex>
#include <utility>

#include "memory/policy.h"

namespace isthmus::memory {

// Thread-safe, with a lock of its own: the driver is called under it.
class ExpandableSegments {
 public:
  // Maps bytes of memory for growth. The addresses of a segment are reserved at its first use. Returns null
  // if the device lacks the memory or the addresses. The current device must be the segments' device.
  void* map(const Policy& policy, const Growth& growth, size_t bytes, size_t expandable_bytes);
  // Unmaps whole units.
  void unmap(const Policy& policy, const Range& range);

 private:
  struct Expandable {
    char* base = nullptr;
    size_t unit = 0;
  };

  std::mutex mutex_;
  std::map<std::pair<const Policy*, int>, Expandable> expandables_;
};

}  // namespace isthmus::memory
