#include "config.h"

#include <algorithm>

#include "error.h"
#include "isthmus_options.h"
#include "machine.h"

namespace isthmus::host {
namespace {

constexpr uint64_t kCapacityUnit = uint64_t{2} << 20;

int32_t read_devices() {
  options::Integer devices = options::kHostDevices;
  if (options::value_of(devices.variable).empty()) {
    devices.variable = "LOCAL_WORLD_SIZE";
    devices.initial = 1;
  }
  return static_cast<int32_t>(options::read(devices));
}

// At most the machine's memory: a program that sizes its caches by it must not be killed.
uint64_t read_capacity() {
  const uint64_t bytes = std::min<uint64_t>(options::read(options::kHostMemory), machine_memory());
  return bytes / kCapacityUnit * kCapacityUnit;
}

Algorithm read_algorithm() {
  const std::string name = options::read(options::kHostCollective);
  if (name == "mesh") return Algorithm::kMesh;
  if (name == "ring") return Algorithm::kRing;
  return name.empty() ? Algorithm::kAuto : Algorithm::kHalvingDoubling;
}

}  // namespace

Config read_config() {
  try {
    options::read(options::kHostDelegate);
    return Config{read_devices(), read_capacity(),
                  options::read(options::kHostStrict) || options::read(options::kHostAsync),
                  read_algorithm()};
  } catch (const options::Error& error) {
    fail(ISTHMUS_INVALID_ARGUMENT, "%s", error.what());
  }
}

bool delegate_enabled() noexcept { return options::value_of(options::kHostDelegate.variable) != "0"; }

}  // namespace isthmus::host
