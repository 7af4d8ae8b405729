// The devices of this process, and the current one of each thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "config.h"
#include "memory.h"
#include "pinned.h"
#include "stream.h"

namespace isthmus::host {

class Device {
 public:
  Device(int32_t index, const Config& config);

  int32_t index() const { return index_; }
  uint64_t capacity() const { return capacity_; }

  // Opens the device's memory on first use: a process pays for the devices it uses.
  DeviceMemory& memory();
  // Null if this process has not used the device's memory.
  DeviceMemory* memory_if_open() const noexcept { return memory_.load(std::memory_order_acquire); }

  Stream& default_stream() { return *default_stream_; }
  Stream& create_stream();
  void destroy_stream(Stream& stream);
  bool owns(const Stream* stream);
  // Includes destroyed streams that still have work.
  std::vector<std::shared_ptr<Stream>> streams();

 private:
  const int32_t index_;
  const uint64_t capacity_;
  const bool strict_;
  std::mutex mutex_;  // guards opening, and the map of streams
  std::atomic<DeviceMemory*> memory_{nullptr};
  const std::shared_ptr<Stream> default_stream_;
  std::unordered_map<const Stream*, std::shared_ptr<Stream>> streams_;  // without the default one
  std::vector<std::weak_ptr<Stream>> destroyed_;  // their workers hold them until the work is done
};

// State made by initialize(). Never freed: threads and destructors may outlive main().
struct Runtime {
  Config config;
  std::vector<std::unique_ptr<Device>> devices;
  PinnedMemory pinned;
};
Runtime& runtime() noexcept;
void set_runtime(std::unique_ptr<Runtime> made) noexcept;

// Throws Failure unless index is a device.
Device& device_at(int32_t index);
Device& current_device();
int32_t current_device_index() noexcept;
void set_current_device(int32_t index);
// The device whose addresses hold pointer, or null.
Device* find_device(const void* pointer) noexcept;
// Memory of the device that owns an address; throws Failure, with the name of the driver's function, where
// find_device() finds none.
DeviceMemory& memory_of(const void* pointer, const char* function);
// The stream of a handle; null stands for the current device's default stream.
Stream& stream_of(isthmus_stream handle);
isthmus_stream handle_of(Stream& stream);

}  // namespace isthmus::host
