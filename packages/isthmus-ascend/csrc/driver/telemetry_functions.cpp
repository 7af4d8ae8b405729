// Telemetry, as far as the vendor's runtime measures it.
#include <algorithm>
#include <cstring>

#include "parts.h"
#include "runtime.h"

namespace isthmus::npu {
namespace {

double share(int32_t percent) { return percent < 0 ? ISTHMUS_TELEMETRY_UNKNOWN : percent / 100.0; }

isthmus_status telemetry(int32_t device, isthmus_telemetry* telemetry) {
  return call([&] {
    require_device(device);
    const DeviceScope scope(device);
    UtilizationRate rate;
    ISTHMUS_ACL_NEWER(rtGetDeviceUtilizationRate, device, &rate);
    const Memory memory = memory_of_device();
    isthmus_telemetry found{};
    found.struct_size = telemetry->struct_size;
    found.temperature_c = found.power_w = found.clock_mhz = ISTHMUS_TELEMETRY_UNKNOWN;
    found.compute_utilization = share(std::max(rate.cube, rate.vector));
    found.memory_utilization =
        static_cast<double>(memory.total - memory.free) / static_cast<double>(memory.total);
    found.link_errors = found.ecc_corrected = found.ecc_uncorrected = ISTHMUS_TELEMETRY_UNKNOWN;
    std::memcpy(telemetry, &found, std::min<size_t>(telemetry->struct_size, sizeof(found)));
    return ISTHMUS_OK;
  });
}

}  // namespace

void add_telemetry_functions(isthmus_driver& table) { table.telemetry = telemetry; }

}  // namespace isthmus::npu
