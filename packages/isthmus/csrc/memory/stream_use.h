// Tracks work of other streams that uses a block, by events recorded when the block is freed.
#pragma once

#include <c10/core/Stream.h>

#include <vector>

namespace isthmus::memory {

struct StreamUse {
  void* event;  // event of core/event.h
};

// Records an event on each stream with outstanding work. Empty if all are idle, or if the driver can no
// longer be called: after a fork, or when the device has failed.
std::vector<StreamUse> record_uses(const std::vector<c10::Stream>& streams) noexcept;

// Drops the uses whose work is done, or waits for all. Returns true when no use remains.
bool uses_done(std::vector<StreamUse>& uses, bool wait) noexcept;

void add_stream(std::vector<c10::Stream>& streams, c10::Stream stream);

}  // namespace isthmus::memory
