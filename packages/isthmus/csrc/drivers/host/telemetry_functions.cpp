// Telemetry: processors from the operating system, memory from the ledger.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string>

#include "device.h"
#include "error.h"
#include "parts.h"

namespace isthmus::host {
namespace {

struct ProcessorTime {
  uint64_t busy, total;  // clock ticks since boot, all processors
};

// Zeros if /proc is not readable.
ProcessorTime read_processor_time() {
  std::ifstream file("/proc/stat");
  std::string label;
  uint64_t user = 0, nice = 0, system = 0, idle = 0, io_wait = 0, irq = 0, soft_irq = 0, steal = 0;
  if (!(file >> label >> user >> nice >> system >> idle >> io_wait >> irq >> soft_irq >> steal))
    return {0, 0};
  const uint64_t busy = user + nice + system + irq + soft_irq + steal;
  return {busy, busy + idle + io_wait};
}

// Busy share of the machine's processors since the last call.
double compute_utilization() {
  static std::mutex mutex;
  static ProcessorTime last{0, 0};
  const std::lock_guard<std::mutex> lock(mutex);
  const ProcessorTime now = read_processor_time();
  const ProcessorTime before = last;
  last = now;
  if (before.total == 0 || now.total <= before.total || now.busy < before.busy)
    return ISTHMUS_TELEMETRY_UNKNOWN;
  return static_cast<double>(now.busy - before.busy) / static_cast<double>(now.total - before.total);
}

isthmus_status telemetry(int32_t index, isthmus_telemetry* telemetry) {
  return call([&] {
    require_not_null(telemetry, "telemetry", "telemetry");
    Device& device = device_at(index);
    const Ledger::Usage usage = device.memory().usage();
    isthmus_telemetry found{};
    found.struct_size = telemetry->struct_size;
    found.temperature_c = found.power_w = found.clock_mhz = ISTHMUS_TELEMETRY_UNKNOWN;
    found.compute_utilization = compute_utilization();
    found.memory_utilization =
        static_cast<double>(usage.own + usage.others) / static_cast<double>(device.capacity());
    found.link_errors = found.ecc_corrected = found.ecc_uncorrected = ISTHMUS_TELEMETRY_UNKNOWN;
    found.health = 0;
    std::memcpy(telemetry, &found, std::min<size_t>(telemetry->struct_size, sizeof(found)));
    return ISTHMUS_OK;
  });
}

}  // namespace

void add_telemetry_functions(isthmus_driver& table) { table.telemetry = telemetry; }

}  // namespace isthmus::host
