// Replay of a recorded trace by an allocator policy, without memory: bytes it would reserve, and its speed.
#pragma once

#include <string>
#include <vector>

#include "memory/policy.h"

namespace isthmus::memory {

// One event: of `kind`, about the allocation `id`.
enum class EventKind : uint8_t { kAllocate, kFree, kStep, kUse };  // kUse: by the stream in `size`

struct Trace {
  size_t count = 0;
  const uint8_t* kind = nullptr;
  const int32_t* id = nullptr;    // dense from 0; an id is used once
  const int64_t* size = nullptr;  // bytes
  const int16_t* stream = nullptr;
  int32_t ids = 0;
};

// A rectangle of the plot: addresses [address, address + size) from one event to another.
struct Span {
  int64_t begin, end, address, size, id;
};

struct ReplayResult {
  int64_t live_first = 0, live = 0;          // peak bytes of the first step; from the second on
  int64_t reserved_first = 0, reserved = 0;  // the same of bytes from the driver
  int64_t growths = 0, releases = 0;         // calls of the driver
  int64_t out_of_memory = -1;                // event that could not be served, or -1
  double seconds = 0;                        // seconds of all events, the driver's part excluded
  std::vector<Span> blocks, segments;        // only with_spans
};

// Throws c10::ValueError for an inconsistent trace, such as a free without allocation.
ReplayResult replay(const std::string& policy, const PolicyOptions& options, size_t capacity,
                    const Trace& trace, bool with_spans);

}  // namespace isthmus::memory
