// Options of the host chip.
#pragma once

#include <cstdint>

namespace isthmus::host {

// Algorithm of all_reduce.
enum class Algorithm : uint32_t { kAuto, kMesh, kRing, kHalvingDoubling };

struct Config {
  int32_t devices;      // ISTHMUS_HOST_DEVICES, else LOCAL_WORLD_SIZE, else 1
  uint64_t capacity;    // ISTHMUS_HOST_MEMORY, or the machine's: bytes per device, a multiple of 2 MiB
  bool strict;          // ISTHMUS_HOST_STRICT or ISTHMUS_HOST_ASYNC
  Algorithm algorithm;  // ISTHMUS_HOST_COLLECTIVE
};

// Throws Failure naming the variable, its value and the values allowed.
Config read_config();

// ISTHMUS_HOST_DELEGATE. Any value except "0" means on here; read_config() rejects invalid ones.
bool delegate_enabled() noexcept;

}  // namespace isthmus::host
