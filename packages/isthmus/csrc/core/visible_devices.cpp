#include "core/visible_devices.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "core/cuda_answers.h"
#include "core/runtime.h"
#include "isthmus_options.h"

namespace isthmus {
namespace {

using Numbers = std::vector<int32_t>;  // of the driver's devices, by ours

isthmus_driver whole;  // as the driver gave it
std::atomic<const Numbers*> visible{nullptr};

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const size_t first = std::min(list.find_first_not_of(" \t", begin), end);
    const size_t last = list.find_last_not_of(" \t", end - 1);
    parts.push_back(end == begin || first == end ? "" : list.substr(first, last + 1 - first));
    begin = end + 1;
  }
  return parts;
}

std::optional<int32_t> number_in(const std::string& text, int32_t count) {
  if (text.empty() || text.size() > 4 || text.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  const int32_t number = std::stoi(text);
  if (number >= count) return std::nullopt;
  return number;
}

Numbers first_numbers(int32_t count) {
  Numbers numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

Numbers named_by_option(int32_t count) {
  const std::string list = options::read(options::kVisibleDevices);
  if (list.empty()) return first_numbers(count);
  if (list == "-1") return {};
  Numbers numbers;
  for (const std::string& part : split(list)) {
    const auto number = number_in(part, count);
    TORCH_CHECK(number, "ISTHMUS_VISIBLE_DEVICES=", list, ": '", part, "' is none of the driver's ", count,
                " devices; give numbers from 0 to ", count - 1, ", separated by commas, or -1 for none");
    TORCH_CHECK(std::find(numbers.begin(), numbers.end(), *number) == numbers.end(),
                "ISTHMUS_VISIBLE_DEVICES=", list, ": names device ", part, " twice");
    numbers.push_back(*number);
  }
  return numbers;
}

Numbers named_for_cuda(const Numbers& numbers) {
  const char* list = uses_cuda_words() ? std::getenv("CUDA_VISIBLE_DEVICES") : nullptr;
  if (list == nullptr) return numbers;
  Numbers found;
  for (const int32_t number : numbers_for_cuda(list, static_cast<int32_t>(numbers.size())))
    found.push_back(numbers[number]);
  return found;
}

const Numbers& read_variables(int32_t count) {
  const Numbers* known = visible.load(std::memory_order_acquire);
  if (known != nullptr && driver_initialized()) return *known;
  Numbers numbers = named_for_cuda(named_by_option(count));
  if (known == nullptr || *known != numbers) {
    known = new Numbers(std::move(numbers));  // leaked: another thread may read the former one
    visible.store(known, std::memory_order_release);
  }
  return *known;
}

isthmus_status device_count(int32_t* count) {
  const isthmus_status status = whole.device_count(count);
  if (status == ISTHMUS_OK) *count = static_cast<int32_t>(read_variables(*count).size());
  return status;
}

// The driver's number; one that it refuses for a device that there is not.
int32_t driver_number(int32_t device) {
  const Numbers* numbers = visible.load(std::memory_order_acquire);
  if (numbers == nullptr) {
    int32_t count = 0;
    if (whole.device_count(&count) != ISTHMUS_OK) return device;
    numbers = &read_variables(count);
  }
  const bool exists = device >= 0 && static_cast<size_t>(device) < numbers->size();
  return exists ? (*numbers)[device] : -1;
}

isthmus_status device_properties(int32_t device, isthmus_device_properties* properties) {
  return whole.device_properties(driver_number(device), properties);
}

isthmus_status device_set(int32_t device) { return whole.device_set(driver_number(device)); }

isthmus_status device_get(int32_t* device) {
  const isthmus_status status = whole.device_get(device);
  if (status == ISTHMUS_OK) *device = visible_number(*device);
  return status;
}

isthmus_status pointer_attributes(const void* pointer, isthmus_pointer_attributes* attributes) {
  const isthmus_status status = whole.pointer_attributes(pointer, attributes);
  if (status == ISTHMUS_OK) attributes->device = visible_number(attributes->device);
  return status;
}

isthmus_status copy_peer_async(void* to, int32_t to_device, const void* from, int32_t from_device,
                               size_t bytes, isthmus_stream stream) {
  return whole.copy_peer_async(to, driver_number(to_device), from, driver_number(from_device), bytes, stream);
}

isthmus_status host_window(int32_t device, isthmus_host_window* window) {
  return whole.host_window(driver_number(device), window);
}

isthmus_status telemetry(int32_t device, isthmus_telemetry* telemetry) {
  return whole.telemetry(driver_number(device), telemetry);
}

}  // namespace

void number_visible_devices(isthmus_driver& table) {
  whole = table;
  table.device_count = &device_count;
  table.device_properties = &device_properties;
  table.device_set = &device_set;
  table.device_get = &device_get;
  table.pointer_attributes = &pointer_attributes;
  if (ISTHMUS_HAS(table, copy_peer_async)) table.copy_peer_async = &copy_peer_async;
  if (ISTHMUS_HAS(table, host_window)) table.host_window = &host_window;
  if (ISTHMUS_HAS(table, telemetry)) table.telemetry = &telemetry;
}

std::vector<int32_t> numbers_for_cuda(const std::string& list, int32_t count) {
  if (list.starts_with("GPU-") || list.starts_with("MIG-")) return first_numbers(count);
  Numbers found;
  for (const std::string& part : split(list)) {
    const auto number = number_in(part, count);
    if (!number) break;
    if (std::find(found.begin(), found.end(), *number) != found.end()) return {};
    found.push_back(*number);
  }
  return found;
}

int32_t visible_number(int32_t driver_device) noexcept {
  const Numbers* numbers = visible.load(std::memory_order_acquire);
  if (numbers == nullptr || driver_device < 0) return driver_device;
  const auto found = std::find(numbers->begin(), numbers->end(), driver_device);
  return found == numbers->end() ? -1 : static_cast<int32_t>(found - numbers->begin());
}

}  // namespace isthmus
