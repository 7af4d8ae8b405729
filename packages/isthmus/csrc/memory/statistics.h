// Counters of a caching allocator, in the terms of torch.cuda.memory_stats().
#pragma once

#include <cstddef>
#include <cstdint>

namespace isthmus::memory {

struct Counter {
  int64_t current = 0, peak = 0, freed = 0, start = 0;

  void add(int64_t n) {
    current += n;
    if (current > peak) peak = current;
  }
  void subtract(int64_t n) {
    current -= n;
    freed += n;
  }
  void set(int64_t n) { n >= current ? add(n - current) : subtract(current - n); }
  int64_t allocated() const { return current + freed - start; }
  void reset_peak() { peak = current; }
  void reset_accumulated() {
    freed = 0;
    start = current;
  }
};

// One quantity for all blocks, for those of the small pool, and for those of the large one.
struct Tally {
  Counter all, small, large;

  void add(bool is_small, int64_t n) {
    all.add(n);
    (is_small ? small : large).add(n);
  }
  void subtract(bool is_small, int64_t n) {
    all.subtract(n);
    (is_small ? small : large).subtract(n);
  }
  template <typename Function>
  void for_each_counter(Function function) {
    for (Counter* counter : {&all, &small, &large}) function(*counter);
  }
};

// active_* count used and waiting blocks; inactive_split_* are free parts of segments in use; oversize_* are
// of at least max_split_size.
struct PoolStatistics {
  Tally allocation, allocated_bytes, requested_bytes, active, active_bytes;
  Tally segment, reserved_bytes, inactive_split, inactive_split_bytes;
  Counter oversize_allocations, oversize_segments;

  template <typename Function>
  void for_each_counter(Function function) {
    for (Tally* tally : {&allocation, &allocated_bytes, &requested_bytes, &active, &active_bytes, &segment,
                         &reserved_bytes, &inactive_split, &inactive_split_bytes})
      tally->for_each_counter(function);
    for (Counter* counter : {&oversize_allocations, &oversize_segments}) function(*counter);
  }
};

}  // namespace isthmus::memory
