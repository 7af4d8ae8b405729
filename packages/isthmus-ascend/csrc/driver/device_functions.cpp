// Initialization, errors, devices.
#include <cstdio>

#include "parts.h"
#include "runtime.h"

namespace isthmus::npu {
namespace {

constexpr uint32_t kAlignment = 512;  // alignment of aclrtMalloc

isthmus_status initialize() {
  return call_guarded([] { return start(), ISTHMUS_OK; });
}

// The vendor's library ends by itself at exit; aclFinalize() would take it from others of this process.
isthmus_status finalize() {
  return call_on_device([] { return ISTHMUS_OK; });
}

isthmus_status count_devices(int32_t* count) {
  return call_guarded([&] { return *count = device_count(), ISTHMUS_OK; });
}

isthmus_status device_properties(int32_t device, isthmus_device_properties* properties) {
  return call_on_device([&] {
    require_device(device);
    const DeviceScope scope(device);
    isthmus_device_properties found{};
    std::snprintf(found.name, sizeof(found.name), "%s", acl().rtGetSocName());
    found.total_memory = memory_of_device().total;
    found.multi_processor_count = 1;
    found.pci_domain = found.pci_bus = found.pci_device = found.numa_node = -1;
    found.memory_alignment = kAlignment;
    found.flags = ISTHMUS_PROPERTY_BFLOAT16;
    *properties = found;
    return ISTHMUS_OK;
  });
}

isthmus_status device_set(int32_t device) {
  return call([&] {
    require_device(device);
    set_device(device);
    return ISTHMUS_OK;
  });
}

isthmus_status device_get(int32_t* device) {
  *device = current_device();
  return ISTHMUS_OK;
}

isthmus_status device_synchronize() {
  return call_on_device([] { return ISTHMUS_ACL(rtSynchronizeDevice), ISTHMUS_OK; });
}

isthmus_status device_memory(uint64_t* free_bytes, uint64_t* total_bytes) {
  return call_on_device([&] {
    const Memory found = memory_of_device();
    *free_bytes = found.free;
    *total_bytes = found.total;
    return ISTHMUS_OK;
  });
}

isthmus_status device_reset() {
  return call_on_device([] { return reset_device(), ISTHMUS_OK; });
}

}  // namespace

void add_device_functions(isthmus_driver& table) {
  table.initialize = initialize;
  table.finalize = finalize;
  table.last_error = last_error;
  table.device_count = count_devices;
  table.device_properties = device_properties;
  table.device_set = device_set;
  table.device_get = device_get;
  table.device_synchronize = device_synchronize;
  table.device_reset = device_reset;
  table.device_memory = device_memory;
}

}  // namespace isthmus::npu
