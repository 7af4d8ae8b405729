// What the environment says about the host chip.
#pragma once

#include <cstdint>

namespace isthmus::host {

constexpr int32_t kMaxDevices = 64;
constexpr uint64_t kMinCapacity = uint64_t{2} << 20;
constexpr uint64_t kDefaultCapacity = uint64_t{8} << 30;

// Of an all-reduce.
enum class Algorithm : uint32_t { kAuto, kMesh, kRing, kHalvingDoubling };

struct Config {
  int32_t devices;      // ISTHMUS_HOST_DEVICES, else LOCAL_WORLD_SIZE, else 1
  uint64_t capacity;    // ISTHMUS_HOST_MEMORY: bytes per device, a multiple of 2 MiB
  bool strict;          // ISTHMUS_HOST_STRICT
  Algorithm algorithm;  // ISTHMUS_HOST_COLLECTIVE
};

// Throws Failure naming the variable, its value and what is allowed.
Config read_config();

// ISTHMUS_HOST_DELEGATE; anything but "0" counts as on, until read_config() has judged it.
bool delegate_enabled() noexcept;

}  // namespace isthmus::host
