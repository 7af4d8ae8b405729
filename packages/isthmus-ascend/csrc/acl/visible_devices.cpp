#include "visible_devices.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "errors.h"

namespace isthmus::ascend {
namespace {

const isthmus_driver* all = nullptr;
std::vector<int32_t> visible;  // the driver's numbers

// Numbers separated by commas, up to the first other character, empty element or device that does not exist.
// None if they do not ascend.
std::vector<int32_t> parse(std::string_view text, int32_t available) {
  text = text.substr(0, text.find_first_not_of("0123456789,"));
  std::vector<int32_t> devices;
  while (!text.empty() && text.front() != ',') {
    const std::string_view element = text.substr(0, text.find(','));
    const auto digits = element.substr(std::min(element.find_first_not_of('0'), element.size()));
    const int32_t device = digits.size() > 9 ? available : std::atoi(std::string(element).c_str());
    if (!devices.empty() && device <= devices.back()) return {};
    if (device >= available) break;
    devices.push_back(device);
    text.remove_prefix(std::min(element.size() + 1, text.size()));
  }
  return devices;
}

// The driver's number; one that no device has if the device is not visible.
int32_t number_of(int32_t device) {
  const bool exists = device >= 0 && device < static_cast<int32_t>(visible.size());
  return exists ? visible[device] : -1;
}

// -1 for devices that are not visible.
int32_t visible_number(int32_t number) {
  const auto found = std::find(visible.begin(), visible.end(), number);
  return found == visible.end() ? -1 : static_cast<int32_t>(found - visible.begin());
}

isthmus_status device_count(int32_t* count) {
  *count = static_cast<int32_t>(visible.size());
  return ISTHMUS_OK;
}

isthmus_status device_properties(int32_t device, isthmus_device_properties* properties) {
  return all->device_properties(number_of(device), properties);
}

isthmus_status device_set(int32_t device) { return all->device_set(number_of(device)); }

isthmus_status device_get(int32_t* device) {
  const isthmus_status status = all->device_get(device);
  if (status == ISTHMUS_OK) *device = std::max(visible_number(*device), 0);  // a thread begins with device 0
  return status;
}

isthmus_status pointer_attributes(const void* pointer, isthmus_pointer_attributes* attributes) {
  const isthmus_status status = all->pointer_attributes(pointer, attributes);
  if (status == ISTHMUS_OK) attributes->device = visible_number(attributes->device);
  return status;
}

isthmus_status copy_peer_async(void* to, int32_t to_device, const void* from, int32_t from_device,
                               size_t bytes, isthmus_stream stream) {
  return all->copy_peer_async(to, number_of(to_device), from, number_of(from_device), bytes, stream);
}

isthmus_status host_window(int32_t device, isthmus_host_window* window) {
  return all->host_window(number_of(device), window);
}

isthmus_status telemetry(int32_t device, isthmus_telemetry* telemetry) {
  return all->telemetry(number_of(device), telemetry);
}

}  // namespace

const isthmus_driver* with_visible_devices(const isthmus_driver* driver) {
  const char* const text = std::getenv("ASCEND_RT_VISIBLE_DEVICES");
  if (text == nullptr) return driver;
  int32_t available = 0;
  if (driver->device_count(&available) != ISTHMUS_OK) fail(kInternal, "%s", driver->last_error());
  all = driver;
  visible = parse(text, available);
  static isthmus_driver table = *driver;
  table.device_count = device_count;
  table.device_properties = device_properties;
  table.device_set = device_set;
  table.device_get = device_get;
  table.pointer_attributes = pointer_attributes;
  table.copy_peer_async = copy_peer_async;
  table.host_window = host_window;
  table.telemetry = telemetry;
  return &table;
}

}  // namespace isthmus::ascend
