// Virtual memory behind growing ranges of addresses: what expandable segments stand on.
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
  // So many bytes of memory for growth, whose expandable is reserved at its first use. Null if the device has
  // not so much, or no such addresses. The current device is the expandables'.
  void* map(const Policy& policy, const Growth& growth, size_t bytes, size_t expandable_bytes);
  // Gives back what was mapped, in whole units.
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
