#include "config.h"

#include "error.h"
#include "isthmus_options.h"

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
    return Config{read_devices(), options::read(options::kHostMemory) / kCapacityUnit * kCapacityUnit,
                  options::read(options::kHostStrict) || options::read(options::kHostAsync),
                  read_algorithm()};
  } catch (const options::Error& error) {
    fail(ISTHMUS_INVALID_ARGUMENT, "%s", error.what());
  }
}

bool delegate_enabled() noexcept { return options::value_of(options::kHostDelegate.variable) != "0"; }

}  // namespace isthmus::host
