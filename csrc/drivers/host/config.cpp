#include "config.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "error.h"

namespace isthmus::host {
namespace {

constexpr uint64_t kCapacityUnit = uint64_t{2} << 20;
constexpr double kMaxCapacity = 64.0 * (uint64_t{1} << 40);

// Null for a variable that is unset or empty.
const char* variable(const char* name) noexcept {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

bool read_flag(const char* name, bool otherwise) {
  const char* value = variable(name);
  if (value == nullptr) return otherwise;
  if (std::strcmp(value, "0") == 0) return false;
  if (std::strcmp(value, "1") == 0) return true;
  fail(ISTHMUS_INVALID_ARGUMENT, "%s=\"%s\" is not a switch; set it to 0 or 1", name, value);
}

int32_t read_devices() {
  const char* name = "ISTHMUS_HOST_DEVICES";
  if (variable(name) == nullptr) name = "LOCAL_WORLD_SIZE";
  const char* value = variable(name);
  if (value == nullptr) return 1;
  int32_t devices = 0;
  const char* end = value + std::strlen(value);
  const auto result = std::from_chars(value, end, devices);
  if (result.ec != std::errc() || result.ptr != end || devices < 0 || devices > kMaxDevices) {
    fail(ISTHMUS_INVALID_ARGUMENT,
         "%s=\"%s\" is not a number of host devices; set it to a whole number from 0 to %d", name, value,
         kMaxDevices);
  }
  return devices;
}

// Bytes in one unit; 0 if the unit is unknown.
double unit_bytes(std::string_view unit) {
  if (unit.empty() || unit == "B") return 1;
  static constexpr std::string_view kPrefixes = "KMGT";
  const size_t power = kPrefixes.find(unit[0]);
  if (power == std::string_view::npos || unit.substr(1) != "iB") return 0;
  return std::pow(1024.0, static_cast<double>(power + 1));
}

uint64_t read_capacity() {
  const char* value = variable("ISTHMUS_HOST_MEMORY");
  if (value == nullptr) return kDefaultCapacity;
  double number = 0;
  const char* end = value + std::strlen(value);
  const auto result = std::from_chars(value, end, number, std::chars_format::fixed);
  const double unit = unit_bytes(std::string_view(result.ptr, static_cast<size_t>(end - result.ptr)));
  const double bytes = number * unit;
  if (result.ec != std::errc() || unit == 0 || !(bytes >= kMinCapacity) || !(bytes <= kMaxCapacity)) {
    fail(ISTHMUS_INVALID_ARGUMENT,
         "ISTHMUS_HOST_MEMORY=\"%s\" is not a device capacity; set it to bytes or a number with KiB, MiB, "
         "GiB or TiB, "
         "from 2MiB to 64TiB, for example 8GiB",
         value);
  }
  return static_cast<uint64_t>(bytes) / kCapacityUnit * kCapacityUnit;
}

Algorithm read_algorithm() {
  const char* value = variable("ISTHMUS_HOST_COLLECTIVE");
  if (value == nullptr) return Algorithm::kAuto;
  if (std::strcmp(value, "mesh") == 0) return Algorithm::kMesh;
  if (std::strcmp(value, "ring") == 0) return Algorithm::kRing;
  if (std::strcmp(value, "halving-doubling") == 0) return Algorithm::kHalvingDoubling;
  fail(ISTHMUS_INVALID_ARGUMENT,
       "ISTHMUS_HOST_COLLECTIVE=\"%s\" is no algorithm; set it to mesh, ring or halving-doubling", value);
}

}  // namespace

Config read_config() {
  read_flag("ISTHMUS_HOST_DELEGATE", true);
  return Config{read_devices(), read_capacity(), read_flag("ISTHMUS_HOST_STRICT", false), read_algorithm()};
}

bool delegate_enabled() noexcept {
  const char* value = std::getenv("ISTHMUS_HOST_DELEGATE");
  return value == nullptr || std::strcmp(value, "0") != 0;
}

}  // namespace isthmus::host
