// The table of driver.h: what is mandatory, and the window through which the host reaches the memory.
#define ISTHMUS_DRIVER_IMPLEMENTATION
#include "driver.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_map>

#include "error.h"
#include "memory.h"
#include "stream.h"

namespace sample {
namespace {

constexpr int32_t kDevices = 2;
constexpr size_t kDefaultCapacity = size_t{4} << 30;
constexpr int32_t kDlpackExtension = 12;  // kDLExtDev
constexpr double kNanosecondsPerMillisecond = 1e6;

thread_local int32_t current = 0;

// Bytes of a device: SAMPLE_CHIP_MEMORY, or the default.
size_t capacity() {
  const char* text = std::getenv("SAMPLE_CHIP_MEMORY");
  if (text == nullptr) return kDefaultCapacity;
  char* end = nullptr;
  const unsigned long long bytes = std::strtoull(text, &end, 10);
  if (bytes < Memory::kAlignment || *end != '\0') {
    throw Failure{ISTHMUS_INVALID_ARGUMENT,
                  std::string("SAMPLE_CHIP_MEMORY=") + text + " is not a number of bytes of 256 or more"};
  }
  return static_cast<size_t>(bytes) / Memory::kAlignment * Memory::kAlignment;
}

struct Device {
  explicit Device(int32_t index) : memory(capacity()), default_stream(Stream::start(index)) {}
  Memory memory;
  std::shared_ptr<Stream> default_stream;
};

struct Runtime {
  Device devices[kDevices] = {Device(0), Device(1)};
  HostMemory host;
  std::mutex mutex;
  std::unordered_map<Stream*, std::shared_ptr<Stream>> streams;
};

std::atomic<Runtime*> running{nullptr};  // never freed: workers may outlive main()

Runtime& runtime() {
  Runtime* found = running.load(std::memory_order_acquire);
  if (found == nullptr) throw Failure{ISTHMUS_INVALID_ARGUMENT, "call initialize() first"};
  return *found;
}

void require_device(int32_t index) {
  if (index >= 0 && index < kDevices) return;
  throw Failure{ISTHMUS_NO_DEVICE, "no device " + std::to_string(index) + "; there are " + std::to_string(kDevices)};
}

Device& current_device() { return runtime().devices[current]; }

int32_t device_of(const void* pointer) {
  for (int32_t i = 0; i < kDevices; ++i) {
    if (runtime().devices[i].memory.contains(pointer)) return i;
  }
  return -1;
}

std::shared_ptr<Stream> stream_of(isthmus_stream handle) {
  if (handle == nullptr) return current_device().default_stream;
  Runtime& all = runtime();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.streams.find(reinterpret_cast<Stream*>(handle));
  require(found != all.streams.end(), "the handle is not a stream, or the stream was destroyed");
  return found->second;
}

Event& event_of(isthmus_event handle) {
  require(handle != nullptr, "the event is null");
  return *reinterpret_cast<Event*>(handle);
}

// ---- Life, devices ----

isthmus_status initialize() {
  return guarded([] {
    static std::mutex once;
    const std::lock_guard<std::mutex> lock(once);
    if (running.load() == nullptr) running.store(new Runtime(), std::memory_order_release);
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
    std::deque<std::shared_ptr<Stream>> streams{current_device().default_stream};
    {
      Runtime& all = runtime();
      const std::lock_guard<std::mutex> lock(all.mutex);
      for (auto& entry : all.streams) {
        if (entry.second->device() == current) streams.push_back(entry.second);
      }
    }
    for (auto& stream : streams) stream->wait();
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

// ---- Memory ----

isthmus_status memory_allocate(size_t bytes, void** pointer) {
  return guarded([&] {
    require(bytes > 0, "memory_allocate: asked 0 bytes; ask for at least 1");
    *pointer = current_device().memory.allocate(bytes);
    return ISTHMUS_OK;
  });
}

isthmus_status memory_free(void* pointer) {
  return guarded([&] {
    if (pointer == nullptr) return ISTHMUS_OK;
    const int32_t device = device_of(pointer);
    require(device >= 0, "memory_free: not an address of a device");
    runtime().devices[device].memory.free(pointer);
    return ISTHMUS_OK;
  });
}

isthmus_status host_allocate(size_t bytes, void** pointer) {
  return guarded([&] {
    require(bytes > 0, "host_allocate: asked 0 bytes; ask for at least 1");
    *pointer = runtime().host.allocate(bytes);
    return ISTHMUS_OK;
  });
}

isthmus_status host_free(void* pointer) {
  return guarded([&] {
    if (pointer != nullptr) runtime().host.free(pointer);
    return ISTHMUS_OK;
  });
}

isthmus_status pointer_attributes(const void* pointer, isthmus_pointer_attributes* attributes) {
  return guarded([&] {
    const int32_t device = device_of(pointer);
    if (device >= 0 && runtime().devices[device].memory.covers(pointer, 1)) {
      *attributes = {ISTHMUS_MEMORY_DEVICE, device};
    } else {
      *attributes = {runtime().host.covers(pointer, 1) ? ISTHMUS_MEMORY_PINNED : ISTHMUS_MEMORY_UNKNOWN, -1};
    }
    return ISTHMUS_OK;
  });
}

isthmus_status host_window(int32_t index, isthmus_host_window* window) {
  return guarded([&] {
    require_device(index);
    const Memory& memory = runtime().devices[index].memory;
    *window = {memory.device_base(), memory.host_base(), memory.capacity()};
    return ISTHMUS_OK;
  });
}

// ---- Copies ----

void check_end(const void* pointer, size_t bytes, bool on_device, const char* name) {
  const int32_t device = device_of(pointer);
  const bool fits = on_device ? device >= 0 && runtime().devices[device].memory.covers(pointer, bytes)
                              : pointer != nullptr && device < 0;
  if (fits) return;
  throw Failure{ISTHMUS_INVALID_ARGUMENT, std::string(name) + ": " + std::to_string(bytes) +
                                              " bytes there are not memory of the kind that the copy names"};
}

void check_copy(void* to, const void* from, size_t bytes, isthmus_copy_kind kind) {
  require(kind >= ISTHMUS_HOST_TO_DEVICE && kind <= ISTHMUS_DEVICE_TO_DEVICE, "kind: there is no such copy");
  check_end(to, bytes, kind != ISTHMUS_DEVICE_TO_HOST, "to");
  check_end(from, bytes, kind != ISTHMUS_HOST_TO_DEVICE, "from");
}

isthmus_status copy(void* to, const void* from, size_t bytes, isthmus_copy_kind kind) {
  return guarded([&] {
    if (bytes == 0) return ISTHMUS_OK;
    check_copy(to, from, bytes, kind);
    std::memmove(to, from, bytes);
    return ISTHMUS_OK;
  });
}

isthmus_status copy_async(void* to, const void* from, size_t bytes, isthmus_copy_kind kind, isthmus_stream handle) {
  return guarded([&] {
    const auto stream = stream_of(handle);
    if (bytes == 0) return ISTHMUS_OK;
    check_copy(to, from, bytes, kind);
    stream->submit([=] { std::memmove(to, from, bytes); });
    // Pageable memory may be gone as soon as the caller goes on.
    const void* host_side = kind == ISTHMUS_HOST_TO_DEVICE ? from : to;
    if (kind != ISTHMUS_DEVICE_TO_DEVICE && !runtime().host.covers(host_side, bytes)) stream->wait();
    return ISTHMUS_OK;
  });
}

isthmus_status set_async(void* pointer, uint8_t value, size_t bytes, isthmus_stream handle) {
  return guarded([&] {
    const auto stream = stream_of(handle);
    if (bytes == 0) return ISTHMUS_OK;
    check_end(pointer, bytes, true, "pointer");
    stream->submit([=] { std::memset(pointer, value, bytes); });
    return ISTHMUS_OK;
  });
}

// ---- Streams ----

isthmus_status stream_create(int32_t /*priority*/, isthmus_stream* handle) {
  return guarded([&] {
    Runtime& all = runtime();
    const auto stream = Stream::start(current);
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.streams.emplace(stream.get(), stream);
    *handle = reinterpret_cast<isthmus_stream>(stream.get());
    return ISTHMUS_OK;
  });
}

isthmus_status stream_destroy(isthmus_stream handle) {
  return guarded([&] {
    require(handle != nullptr, "stream_destroy: the default stream is never destroyed");
    const auto stream = stream_of(handle);
    Runtime& all = runtime();
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.streams.erase(stream.get());
    stream->close();
    return ISTHMUS_OK;
  });
}

isthmus_status stream_synchronize(isthmus_stream handle) {
  return guarded([&] {
    stream_of(handle)->wait();
    return ISTHMUS_OK;
  });
}

isthmus_status stream_query(isthmus_stream handle) {
  return guarded([&] { return stream_of(handle)->idle() ? ISTHMUS_OK : ISTHMUS_NOT_READY; });
}

isthmus_status stream_wait_event(isthmus_stream handle, isthmus_event event) {
  return guarded([&] {
    const auto stream = stream_of(handle);
    if (const auto mark = event_of(event).mark()) stream->submit([mark] { mark->wait(); });
    return ISTHMUS_OK;
  });
}

// ---- Events ----

isthmus_status event_create(uint32_t flags, isthmus_event* event) {
  return guarded([&] {
    require((flags & ~ISTHMUS_EVENT_TIMING) == 0, "event_create: only ISTHMUS_EVENT_TIMING is supported");
    *event = reinterpret_cast<isthmus_event>(new Event(flags));
    return ISTHMUS_OK;
  });
}

isthmus_status event_destroy(isthmus_event event) {
  return guarded([&] {
    delete &event_of(event);
    return ISTHMUS_OK;
  });
}

isthmus_status event_record(isthmus_event event, isthmus_stream stream) {
  return guarded([&] {
    event_of(event).record(*stream_of(stream));
    return ISTHMUS_OK;
  });
}

isthmus_status event_query(isthmus_event event) {
  return guarded([&] {
    const auto mark = event_of(event).mark();
    return mark == nullptr || mark->time() != 0 ? ISTHMUS_OK : ISTHMUS_NOT_READY;
  });
}

isthmus_status event_synchronize(isthmus_event event) {
  return guarded([&] {
    if (const auto mark = event_of(event).mark()) mark->wait();
    return ISTHMUS_OK;
  });
}

isthmus_status event_elapsed(isthmus_event start, isthmus_event end, double* milliseconds) {
  return guarded([&] {
    Event& first = event_of(start);
    Event& last = event_of(end);
    require(first.timing() && last.timing(), "event_elapsed: create both events with ISTHMUS_EVENT_TIMING");
    const auto begun = first.mark();
    const auto ended = last.mark();
    require(begun != nullptr && ended != nullptr, "event_elapsed: record both events first");
    if (begun->time() == 0 || ended->time() == 0) {
      throw Failure{ISTHMUS_NOT_READY, "event_elapsed: an event is not done yet; synchronize it first"};
    }
    *milliseconds = static_cast<double>(ended->time() - begun->time()) / kNanosecondsPerMillisecond;
    return ISTHMUS_OK;
  });
}

isthmus_driver make_table() {
  isthmus_driver table{};
  table.struct_size = sizeof(table);
  table.version = ISTHMUS_DRIVER_VERSION;
  table.name = "sample";
  table.description = "Sample chip: two devices in software, outside the Isthmus repository";
  table.delegate = ISTHMUS_DELEGATE_NONE;
  table.dlpack_device = kDlpackExtension;
  table.initialize = initialize;
  table.finalize = finalize;
  table.last_error = last_error;
  table.device_count = device_count;
  table.device_properties = device_properties;
  table.device_set = device_set;
  table.device_get = device_get;
  table.device_synchronize = device_synchronize;
  table.device_memory = device_memory;
  table.memory_allocate = memory_allocate;
  table.memory_free = memory_free;
  table.host_allocate = host_allocate;
  table.host_free = host_free;
  table.pointer_attributes = pointer_attributes;
  table.host_window = host_window;
  table.copy = copy;
  table.copy_async = copy_async;
  table.set_async = set_async;
  table.stream_create = stream_create;
  table.stream_destroy = stream_destroy;
  table.stream_synchronize = stream_synchronize;
  table.stream_query = stream_query;
  table.stream_wait_event = stream_wait_event;
  table.event_create = event_create;
  table.event_destroy = event_destroy;
  table.event_record = event_record;
  table.event_query = event_query;
  table.event_synchronize = event_synchronize;
  table.event_elapsed = event_elapsed;
  return table;
}

}  // namespace
}  // namespace sample

extern "C" const isthmus_driver* isthmus_driver_get(uint32_t core_version) {
  if (core_version >> 16 != ISTHMUS_DRIVER_VERSION_MAJOR) return nullptr;
  static const isthmus_driver table = sample::make_table();
  return &table;
}
