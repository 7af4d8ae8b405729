// The allocations of this process, as AscendCL says neither whose memory an address is nor whether it was
// freed.
#pragma once

#include <cstdint>
#include <map>
#include <shared_mutex>

#include "driver.h"

namespace isthmus::npu {

struct Allocation {
  size_t bytes;
  isthmus_pointer_attributes attributes;
};

class Ledger {
 public:
  void add(void* pointer, const Allocation& allocation);
  // Whether it was there.
  bool remove(const void* pointer, isthmus_memory_kind kind);
  // ISTHMUS_MEMORY_UNKNOWN outside all allocations.
  isthmus_pointer_attributes find(const void* pointer) const;
  // Bytes of the device memory that starts there; 0 if none does.
  size_t size(const void* pointer) const;
  // Whether all of these bytes are allocated memory of a kind.
  bool covers(const void* pointer, size_t bytes, isthmus_memory_kind kind) const;

 private:
  const std::pair<const uintptr_t, Allocation>* at(const void* pointer) const;

  mutable std::shared_mutex mutex_;
  std::map<uintptr_t, Allocation> allocations_;
};

Ledger& ledger();

}  // namespace isthmus::npu
