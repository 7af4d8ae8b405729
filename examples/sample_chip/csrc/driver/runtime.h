// The devices and streams of this process.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "driver.h"
#include "error.h"
#include "memory.h"
#include "stream.h"

namespace sample {

constexpr int32_t kDevices = 2;

// Bytes of a device: SAMPLE_CHIP_MEMORY, or 4 GiB.
size_t capacity();

struct Device {
  explicit Device(int32_t index) : memory(capacity()), default_stream(Stream::start(index)) {}
  Memory memory;
  std::shared_ptr<Stream> default_stream;
};

struct Runtime {
  Device devices[kDevices] = {Device(0), Device(1)};
  HostMemory host;
  std::mutex mutex;  // guards the members below
  std::unordered_map<Stream*, std::shared_ptr<Stream>> streams;
  std::vector<std::shared_ptr<Stream>> leaving;  // destroyed, but possibly not complete
};

// Creates the runtime, once.
void start_runtime();
Runtime& runtime();

// Current device of this thread.
extern thread_local int32_t current;
inline Device& current_device() { return runtime().devices[current]; }
void require_device(int32_t index);
// Device of an address, or -1.
int32_t device_of(const void* pointer);

std::shared_ptr<Stream> stream_of(isthmus_stream handle);
Event& event_of(isthmus_event handle);

// Each file fills its part of the table.
void add_device_functions(isthmus_driver& table);
void add_memory_functions(isthmus_driver& table);
void add_copy_functions(isthmus_driver& table);
void add_stream_functions(isthmus_driver& table);
void add_event_functions(isthmus_driver& table);

}  // namespace sample
