#include "machine.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

namespace isthmus::host {
namespace {

constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();

// A line "MemTotal:  24689840 kB" of /proc/meminfo, in bytes.
uint64_t of_system(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    uint64_t kib = 0;
    if (words >> key >> kib && key == name) return kib << 10;
  }
  return kUnknown;
}

// The number in a file of the control group; "max" and a missing file are unknown.
uint64_t of_group(const std::string& path) {
  std::ifstream file(path);
  uint64_t bytes = 0;
  return file >> bytes ? bytes : kUnknown;
}

// Pages of files, which the group gives up first.
uint64_t reclaimable() {
  std::ifstream file("/sys/fs/cgroup/memory.stat");
  std::string key;
  for (uint64_t bytes = 0; file >> key >> bytes;)
    if (key == "inactive_file") return bytes;
  return 0;
}

}  // namespace

uint64_t machine_memory() { return std::min(of_system("MemTotal:"), of_group("/sys/fs/cgroup/memory.max")); }

uint64_t available_memory() {
  const uint64_t system = of_system("MemAvailable:"), limit = of_group("/sys/fs/cgroup/memory.max"),
                 used = of_group("/sys/fs/cgroup/memory.current");
  if (limit == kUnknown || used == kUnknown) return system;
  const uint64_t held = used - std::min(used, reclaimable());
  return std::min(system, limit - std::min(limit, held));
}

}  // namespace isthmus::host
