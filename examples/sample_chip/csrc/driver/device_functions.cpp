// Initialization, errors, devices.
#include <cstdio>

#include "runtime.h"

namespace sample {
namespace {

// Includes destroyed streams, whose work may still run.
std::vector<std::shared_ptr<Stream>> streams_of_current_device() {
  Runtime& all = runtime();
  std::vector<std::shared_ptr<Stream>> found{current_device().default_stream};
  const std::lock_guard<std::mutex> lock(all.mutex);
  for (auto& entry : all.streams) {
    if (entry.second->device() == current) found.push_back(entry.second);
  }
  for (auto& stream : all.leaving) {
    if (stream->device() == current) found.push_back(stream);
  }
  return found;
}

isthmus_status initialize() {
  return guarded([] {
    start_runtime();
    return ISTHMUS_OK;
  });
}

isthmus_status finalize() {
  return guarded([] {
    Runtime& all = runtime();
    for (Device& device : all.devices) {
      device.default_stream->wait();
      device.default_stream->close();
    }
    const std::lock_guard<std::mutex> lock(all.mutex);
    for (auto& entry : all.streams) entry.second->close();
    return ISTHMUS_OK;
  });
}

const char* last_error() { return last_message().c_str(); }

isthmus_status device_count(int32_t* count) {
  *count = kDevices;
  return ISTHMUS_OK;
}

isthmus_status device_properties(int32_t index, isthmus_device_properties* properties) {
  return guarded([&] {
    require_device(index);
    isthmus_device_properties found{};
    std::snprintf(found.name, sizeof(found.name), "Sample chip");
    found.total_memory = capacity();
    found.capability_major = 1;
    found.multi_processor_count = 1;
    found.pci_domain = found.pci_bus = found.pci_device = found.numa_node = -1;
    found.memory_alignment = Memory::kAlignment;
    *properties = found;
    return ISTHMUS_OK;
  });
}

isthmus_status device_set(int32_t index) {
  return guarded([&] {
    require_device(index);
    current = index;
    return ISTHMUS_OK;
  });
}

isthmus_status device_get(int32_t* index) {
  *index = current;
  return ISTHMUS_OK;
}

isthmus_status device_synchronize() {
  return guarded([] {
    for (auto& stream : streams_of_current_device()) stream->wait();
    return ISTHMUS_OK;
  });
}

isthmus_status device_memory(uint64_t* free_bytes, uint64_t* total_bytes) {
  return guarded([&] {
    Memory& memory = current_device().memory;
    *free_bytes = memory.available();
    *total_bytes = memory.capacity();
    return ISTHMUS_OK;
  });
}

}  // namespace

void add_device_functions(isthmus_driver& table) {
  table.initialize = initialize;
  table.finalize = finalize;
  table.last_error = last_error;
  table.device_count = device_count;
  table.device_properties = device_properties;
  table.device_set = device_set;
  table.device_get = device_get;
  table.device_synchronize = device_synchronize;
  table.device_memory = device_memory;
}

}  // namespace sample
