#include "device.h"

#include <algorithm>

#include "error.h"

namespace isthmus::host {
namespace {

Runtime* the_runtime = nullptr;  // written once, before driver_state becomes kReady
thread_local int32_t current_index = 0;

}  // namespace

Device::Device(int32_t index, const Config& config)
    : index_(index),
      capacity_(config.capacity),
      strict_(config.strict),
      default_stream_(std::make_shared<Stream>(index, config.strict)) {}

DeviceMemory& Device::memory() {
  if (DeviceMemory* open = memory_if_open()) return *open;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (DeviceMemory* open = memory_if_open()) return *open;
  memory_.store(new DeviceMemory(index_, capacity_, strict_), std::memory_order_release);
  return *memory_if_open();
}

Stream& Device::create_stream() {
  auto stream = std::make_shared<Stream>(index_, strict_);
  Stream& created = *stream;
  const std::lock_guard<std::mutex> lock(mutex_);
  streams_.emplace(&created, std::move(stream));
  return created;
}

void Device::destroy_stream(Stream& stream) {
  std::shared_ptr<Stream> destroyed;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = streams_.find(&stream);
    if (found == streams_.end()) {
      fail(ISTHMUS_INVALID_ARGUMENT, "stream_destroy: %p is already destroyed", static_cast<void*>(&stream));
    }
    destroyed = std::move(found->second);
    streams_.erase(found);
    const auto gone = std::remove_if(destroyed_.begin(), destroyed_.end(),
                                     [](const auto& stream) { return stream.expired(); });
    destroyed_.erase(gone, destroyed_.end());
    if (!destroyed->idle()) destroyed_.push_back(destroyed);
  }
  destroyed->close();
}

bool Device::owns(const Stream* stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stream == default_stream_.get() || streams_.count(stream) != 0;
}

std::vector<std::shared_ptr<Stream>> Device::streams() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::shared_ptr<Stream>> all{default_stream_};
  for (const auto& entry : streams_) all.push_back(entry.second);
  for (const auto& entry : destroyed_)
    if (auto stream = entry.lock()) all.push_back(std::move(stream));
  return all;
}

Runtime& runtime() noexcept { return *the_runtime; }

void set_runtime(std::unique_ptr<Runtime> made) noexcept { the_runtime = made.release(); }

Device& device_at(int32_t index) {
  auto& devices = runtime().devices;
  if (index < 0 || static_cast<size_t>(index) >= devices.size()) {
    fail(ISTHMUS_NO_DEVICE,
         "device %d does not exist: %zu available, numbered from 0; set ISTHMUS_HOST_DEVICES", index,
         devices.size());
  }
  return *devices[static_cast<size_t>(index)];
}

Device& current_device() { return device_at(current_index); }

int32_t current_device_index() noexcept { return current_index; }

void set_current_device(int32_t index) {
  device_at(index);
  current_index = index;
}

Device* find_device(const void* pointer) noexcept {
  for (const auto& device : runtime().devices) {
    const DeviceMemory* memory = device->memory_if_open();
    if (memory != nullptr && memory->window().contains(pointer)) return device.get();
  }
  return nullptr;
}

DeviceMemory& memory_of(const void* pointer, const char* function) {
  Device* device = find_device(pointer);
  if (device == nullptr) {
    fail(ISTHMUS_INVALID_ARGUMENT, "%s: %p is not memory of a device of this process", function, pointer);
  }
  return device->memory();
}

Stream& stream_of(isthmus_stream handle) {
  if (handle == nullptr) return current_device().default_stream();
  Stream& stream = *reinterpret_cast<Stream*>(handle);
  if (!stream.is_valid()) {
    fail(ISTHMUS_INVALID_ARGUMENT, "%p is not a stream; pass one returned by stream_create()",
         static_cast<void*>(handle));
  }
  return stream;
}

isthmus_stream handle_of(Stream& stream) { return reinterpret_cast<isthmus_stream>(&stream); }

}  // namespace isthmus::host
