// A limit on the size of an operator's allocations.
#pragma once

#include <cstdint>

namespace isthmus::ascend {

// Bytes of memory of a device; all have as many. Throws c10::Error if there is no host chip.
uint64_t device_bytes();

// Within a scope, an allocation of the CPU's memory by this thread fails if it is larger than the device's
// memory: a result of an absurd size is an error and does not exhaust the host.
class AllocationLimit {
 public:
  AllocationLimit();
  ~AllocationLimit();
  AllocationLimit(const AllocationLimit&) = delete;
  AllocationLimit& operator=(const AllocationLimit&) = delete;

 private:
  const uint64_t before_;
};

}  // namespace isthmus::ascend
