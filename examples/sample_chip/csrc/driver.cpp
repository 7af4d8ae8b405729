// A driver: two devices in software. The memory of each is mapped twice, so that device addresses differ from
// host addresses; streams are queues with a worker thread, events are markers in them. The table is at the
// end.
#define ISTHMUS_DRIVER_IMPLEMENTATION
#include "driver.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <future>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr int32_t kDevices = 2;
constexpr int32_t kDlpackExtension = 12;  // kDLExtDev
constexpr size_t kAlignment = 256;

// ---- Failures are exceptions inside the driver; call_guarded() turns them into a status and last_error()
// ----

struct Failure {
  isthmus_status status;
  std::string message;  // what, the value, the remedy
};

thread_local std::string last_message;

void require(bool condition, const char* message) {
  if (!condition) throw Failure{ISTHMUS_INVALID_ARGUMENT, message};
}

template <typename Body>
isthmus_status call_guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (Failure& failure) {
    last_message = std::move(failure.message);
    return failure.status;
  } catch (const std::bad_alloc&) {
    last_message = "out of host memory";
    return ISTHMUS_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    last_message = error.what();
    return ISTHMUS_INTERNAL;
  }
}

// ---- Memory ----

// Allocations by address.
class Blocks {
 public:
  void add(const void* start, size_t bytes) { blocks_.emplace(static_cast<const char*>(start), bytes); }
  bool remove(const void* start) { return blocks_.erase(static_cast<const char*>(start)) == 1; }

  // Whether all the bytes lie in one allocation.
  bool cover(const void* pointer, size_t bytes) const {
    const char* start = static_cast<const char*>(pointer);
    auto next = blocks_.upper_bound(start);
    if (next == blocks_.begin()) return false;
    const auto& [begin, size] = *std::prev(next);
    const size_t within = static_cast<size_t>(start - begin);
    return within < size && bytes <= size - within;
  }

  // First address from `base` on with so many free bytes behind it.
  char* first_gap(char* base, size_t bytes) const {
    const char* gap = base;
    for (const auto& [begin, size] : blocks_) {
      if (static_cast<size_t>(begin - gap) >= bytes) break;
      gap = begin + size;
    }
    return base + (gap - base);
  }

  size_t total() const {
    size_t bytes = 0;
    for (const auto& block : blocks_) bytes += block.second;
    return bytes;
  }

 private:
  std::map<const char*, size_t> blocks_;
};

char* map_file(int file, size_t bytes) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (address == MAP_FAILED) throw Failure{ISTHMUS_NO_DEVICE, "cannot map the device's memory"};
  return static_cast<char*>(address);
}

// Bytes of a device: SAMPLE_CHIP_MEMORY, or 4 GiB, committed on demand.
size_t capacity() {
  const char* text = std::getenv("SAMPLE_CHIP_MEMORY");
  if (text == nullptr) return size_t{4} << 30;
  char* end = nullptr;
  const unsigned long long bytes = std::strtoull(text, &end, 10);
  if (bytes < kAlignment || *end != '\0') {
    throw Failure{ISTHMUS_INVALID_ARGUMENT,
                  std::string("SAMPLE_CHIP_MEMORY=") + text + " is not a number of bytes of 256 or more"};
  }
  return static_cast<size_t>(bytes) / kAlignment * kAlignment;
}

// ---- Streams and events ----

using Clock = std::chrono::steady_clock;
using Mark = std::shared_future<Clock::time_point>;  // the time at which a stream reached a point

bool is_reached(const Mark& mark) {
  return mark.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

class Stream {
 public:
  // The worker holds the stream until it is closed and all submitted work has run.
  static std::shared_ptr<Stream> start(int32_t device) {
    std::shared_ptr<Stream> stream(new Stream(device));
    sigset_t all, before;  // signals are for the application's threads
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread([stream] { stream->work(); }).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return stream;
  }

  void submit(std::function<void()> task) {
    const std::lock_guard<std::mutex> lock(mutex_);
    tasks_.push_back(std::move(task));
    ++submitted_;
    changed_.notify_all();
  }

  Mark mark() {
    const auto reached = std::make_shared<std::promise<Clock::time_point>>();
    Mark mark = reached->get_future().share();
    submit([reached] { reached->set_value(Clock::now()); });
    return mark;
  }

  // For the work submitted so far.
  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&, number = submitted_] { return done_ >= number; });
  }

  bool is_idle() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return done_ == submitted_;
  }

  void close() {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

  const int32_t device;

 private:
  explicit Stream(int32_t index) : device(index) {}

  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return closed_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  uint64_t submitted_ = 0, done_ = 0;
  bool closed_ = false;
};

struct Event {
  const bool timing;
  std::mutex mutex;
  Mark last;  // invalid before the first record

  Mark mark() {
    const std::lock_guard<std::mutex> lock(mutex);
    return last;
  }
};

// ---- The devices of this process ----

struct Device {
  explicit Device(int32_t index) : bytes(capacity()), stream(Stream::start(index)) {
    const int file = memfd_create("sample-chip", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) {
      throw Failure{ISTHMUS_NO_DEVICE, "cannot create the device's memory"};
    }
    base = map_file(file, bytes);
    host_base = map_file(file, bytes);
    close(file);  // the mappings keep the file
  }

  bool contains(const void* pointer) const { return pointer >= base && pointer < base + bytes; }

  const size_t bytes;
  char *base, *host_base;
  Blocks blocks;
  const std::shared_ptr<Stream> stream;
};

struct Runtime {
  std::array<Device, kDevices> devices{Device(0), Device(1)};
  std::mutex mutex;  // guards all blocks and the members below
  Blocks pinned;
  std::map<Stream*, std::shared_ptr<Stream>> streams;
  std::vector<std::shared_ptr<Stream>> destroyed;  // but possibly not complete
};

std::atomic<Runtime*> running{nullptr};  // never freed: workers may outlive main()
thread_local int32_t current = 0;

Runtime& runtime() {
  Runtime* found = running.load();
  if (found == nullptr) throw Failure{ISTHMUS_INVALID_ARGUMENT, "call initialize() first"};
  return *found;
}

Device& current_device() { return runtime().devices[current]; }

void require_device(int32_t index) {
  if (index >= 0 && index < kDevices) return;
  throw Failure{ISTHMUS_NO_DEVICE, "device " + std::to_string(index) + " does not exist; " +
                                       std::to_string(kDevices) + " devices available"};
}

// Device of an address, or -1.
int32_t device_of(const void* pointer) {
  for (int32_t i = 0; i < kDevices; ++i) {
    if (runtime().devices[i].contains(pointer)) return i;
  }
  return -1;
}

std::shared_ptr<Stream> stream_of(isthmus_stream handle) {
  if (handle == nullptr) return current_device().stream;
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

// ---- The functions of driver.h: life, devices ----

isthmus_status initialize() {
  return call_guarded([] {
    static std::mutex once;
    const std::lock_guard<std::mutex> lock(once);
    if (running.load() == nullptr) running.store(new Runtime());
    return ISTHMUS_OK;
  });
}

isthmus_status finalize() {
  return call_guarded([] {
    Runtime& all = runtime();
    for (Device& device : all.devices) {
      device.stream->wait();
      device.stream->close();
    }
    const std::lock_guard<std::mutex> lock(all.mutex);
    for (auto& entry : all.streams) entry.second->close();
    return ISTHMUS_OK;
  });
}

const char* last_error() { return last_message.c_str(); }

isthmus_status device_count(int32_t* count) {
  *count = kDevices;
  return ISTHMUS_OK;
}

isthmus_status device_properties(int32_t index, isthmus_device_properties* properties) {
  return call_guarded([&] {
    require_device(index);
    isthmus_device_properties found{};
    std::snprintf(found.name, sizeof(found.name), "Sample chip");
    found.total_memory = capacity();
    found.capability_major = 1;
    found.multi_processor_count = 1;
    found.pci_domain = found.pci_bus = found.pci_device = found.numa_node = -1;
    found.memory_alignment = kAlignment;
    *properties = found;
    return ISTHMUS_OK;
  });
}

isthmus_status device_set(int32_t index) {
  return call_guarded([&] {
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
  return call_guarded([] {
    Runtime& all = runtime();
    std::vector<std::shared_ptr<Stream>> streams{current_device().stream};
    {
      const std::lock_guard<std::mutex> lock(all.mutex);
      for (auto& entry : all.streams) streams.push_back(entry.second);
      streams.insert(streams.end(), all.destroyed.begin(), all.destroyed.end());
    }
    for (auto& stream : streams) {
      if (stream->device == current) stream->wait();
    }
    return ISTHMUS_OK;
  });
}

isthmus_status device_memory(uint64_t* free_bytes, uint64_t* total_bytes) {
  return call_guarded([&] {
    const std::lock_guard<std::mutex> lock(runtime().mutex);
    const Device& device = current_device();
    *free_bytes = device.bytes - device.blocks.total();
    *total_bytes = device.bytes;
    return ISTHMUS_OK;
  });
}

// ---- Memory and copies ----

isthmus_status memory_allocate(size_t bytes, void** pointer) {
  return call_guarded([&] {
    require(bytes > 0, "memory_allocate: bytes is 0; it must be at least 1");
    Device& device = current_device();
    const std::lock_guard<std::mutex> lock(runtime().mutex);
    const size_t rounded = std::min(bytes, device.bytes + 1) + kAlignment - 1;
    char* found = device.blocks.first_gap(device.base, rounded / kAlignment * kAlignment);
    if (static_cast<size_t>(device.base + device.bytes - found) < bytes) {
      throw Failure{ISTHMUS_OUT_OF_MEMORY, "no free block of " + std::to_string(bytes) +
                                               " bytes in a memory of " + std::to_string(device.bytes) +
                                               "; lower the micro-batch"};
    }
    device.blocks.add(found, rounded / kAlignment * kAlignment);
    *pointer = found;
    return ISTHMUS_OK;
  });
}

isthmus_status memory_free(void* pointer) {
  return call_guarded([&] {
    if (pointer == nullptr) return ISTHMUS_OK;
    const int32_t device = device_of(pointer);
    const std::lock_guard<std::mutex> lock(runtime().mutex);
    require(device >= 0 && runtime().devices[device].blocks.remove(pointer),
            "memory_free: the pointer is not the start of an allocation");
    return ISTHMUS_OK;
  });
}

// Page-locked host memory; here ordinary memory with registered addresses.
isthmus_status host_allocate(size_t bytes, void** pointer) {
  return call_guarded([&] {
    require(bytes > 0, "host_allocate: bytes is 0; it must be at least 1");
    void* made = nullptr;
    if (posix_memalign(&made, 64, bytes) != 0) throw std::bad_alloc();
    const std::lock_guard<std::mutex> lock(runtime().mutex);
    runtime().pinned.add(made, bytes);
    *pointer = made;
    return ISTHMUS_OK;
  });
}

isthmus_status host_free(void* pointer) {
  return call_guarded([&] {
    if (pointer == nullptr) return ISTHMUS_OK;
    const std::lock_guard<std::mutex> lock(runtime().mutex);
    require(runtime().pinned.remove(pointer), "host_free: the pointer is not from host_allocate()");
    std::free(pointer);
    return ISTHMUS_OK;
  });
}

// Whether the bytes lie in one allocation of a device, or in pinned memory with device -1.
bool is_allocated(int32_t device, const void* pointer, size_t bytes) {
  Runtime& all = runtime();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return (device < 0 ? all.pinned : all.devices[device].blocks).cover(pointer, bytes);
}

isthmus_status pointer_attributes(const void* pointer, isthmus_pointer_attributes* attributes) {
  return call_guarded([&] {
    const int32_t device = device_of(pointer);
    *attributes = {ISTHMUS_MEMORY_UNKNOWN, -1};
    if (!is_allocated(device, pointer, 1)) return ISTHMUS_OK;
    *attributes = {device < 0 ? ISTHMUS_MEMORY_PINNED : ISTHMUS_MEMORY_DEVICE, device};
    return ISTHMUS_OK;
  });
}

isthmus_status host_window(int32_t index, isthmus_host_window* window) {
  return call_guarded([&] {
    require_device(index);
    const Device& device = runtime().devices[index];
    *window = {device.base, device.host_base, device.bytes};
    return ISTHMUS_OK;
  });
}

void check_end(const void* pointer, size_t bytes, bool on_device, const char* name) {
  const int32_t device = device_of(pointer);
  if (on_device ? device >= 0 && is_allocated(device, pointer, bytes) : pointer != nullptr && device < 0)
    return;
  throw Failure{ISTHMUS_INVALID_ARGUMENT, std::string(name) + ": " + std::to_string(bytes) +
                                              " bytes there are not memory of the kind that the copy names"};
}

void check_copy(void* to, const void* from, size_t bytes, isthmus_copy_kind kind) {
  require(kind >= ISTHMUS_HOST_TO_DEVICE && kind <= ISTHMUS_DEVICE_TO_DEVICE, "copy: unknown kind");
  if (bytes == 0) return;
  check_end(to, bytes, kind != ISTHMUS_DEVICE_TO_HOST, "to");
  check_end(from, bytes, kind != ISTHMUS_HOST_TO_DEVICE, "from");
}

isthmus_status copy(void* to, const void* from, size_t bytes, isthmus_copy_kind kind) {
  return call_guarded([&] {
    check_copy(to, from, bytes, kind);
    if (bytes > 0) std::memmove(to, from, bytes);
    return ISTHMUS_OK;
  });
}

isthmus_status copy_async(void* to, const void* from, size_t bytes, isthmus_copy_kind kind,
                          isthmus_stream handle) {
  return call_guarded([&] {
    const auto stream = stream_of(handle);
    check_copy(to, from, bytes, kind);
    if (bytes == 0) return ISTHMUS_OK;
    stream->submit([=] { std::memmove(to, from, bytes); });
    // Pageable memory may be freed as soon as the call returns.
    const void* host_side = kind == ISTHMUS_HOST_TO_DEVICE ? from : to;
    if (kind != ISTHMUS_DEVICE_TO_DEVICE && !is_allocated(-1, host_side, bytes)) stream->wait();
    return ISTHMUS_OK;
  });
}

isthmus_status set_async(void* pointer, uint8_t value, size_t bytes, isthmus_stream handle) {
  return call_guarded([&] {
    const auto stream = stream_of(handle);
    if (bytes == 0) return ISTHMUS_OK;
    check_end(pointer, bytes, true, "pointer");
    stream->submit([=] { std::memset(pointer, value, bytes); });
    return ISTHMUS_OK;
  });
}

// ---- Streams ----

isthmus_status stream_create(int32_t /*priority*/, isthmus_stream* handle) {
  return call_guarded([&] {
    Runtime& all = runtime();
    const auto stream = Stream::start(current);
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.streams.emplace(stream.get(), stream);
    *handle = reinterpret_cast<isthmus_stream>(stream.get());
    return ISTHMUS_OK;
  });
}

isthmus_status stream_destroy(isthmus_stream handle) {
  return call_guarded([&] {
    require(handle != nullptr, "stream_destroy: the default stream cannot be destroyed");
    const auto stream = stream_of(handle);
    Runtime& all = runtime();
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.streams.erase(stream.get());
    stream->close();
    const auto done = [](const std::shared_ptr<Stream>& one) { return one->is_idle(); };
    all.destroyed.erase(std::remove_if(all.destroyed.begin(), all.destroyed.end(), done),
                        all.destroyed.end());
    all.destroyed.push_back(stream);
    return ISTHMUS_OK;
  });
}

isthmus_status stream_synchronize(isthmus_stream handle) {
  return call_guarded([&] {
    stream_of(handle)->wait();
    return ISTHMUS_OK;
  });
}

isthmus_status stream_query(isthmus_stream handle) {
  return call_guarded([&] { return stream_of(handle)->is_idle() ? ISTHMUS_OK : ISTHMUS_NOT_READY; });
}

isthmus_status stream_wait_event(isthmus_stream handle, isthmus_event event) {
  return call_guarded([&] {
    const auto stream = stream_of(handle);
    const Mark mark = event_of(event).mark();
    if (mark.valid()) stream->submit([mark] { mark.wait(); });
    return ISTHMUS_OK;
  });
}

// ---- Events ----

isthmus_status event_create(uint32_t flags, isthmus_event* event) {
  return call_guarded([&] {
    require((flags & ~ISTHMUS_EVENT_TIMING) == 0, "event_create: only ISTHMUS_EVENT_TIMING is supported");
    *event = reinterpret_cast<isthmus_event>(new Event{flags != 0, {}, {}});
    return ISTHMUS_OK;
  });
}

isthmus_status event_destroy(isthmus_event event) {
  return call_guarded([&] {
    delete &event_of(event);
    return ISTHMUS_OK;
  });
}

isthmus_status event_record(isthmus_event handle, isthmus_stream stream) {
  return call_guarded([&] {
    Event& event = event_of(handle);
    const std::lock_guard<std::mutex> lock(event.mutex);
    event.last = stream_of(stream)->mark();
    return ISTHMUS_OK;
  });
}

isthmus_status event_query(isthmus_event event) {
  return call_guarded([&] {
    const Mark mark = event_of(event).mark();
    return !mark.valid() || is_reached(mark) ? ISTHMUS_OK : ISTHMUS_NOT_READY;
  });
}

isthmus_status event_synchronize(isthmus_event event) {
  return call_guarded([&] {
    const Mark mark = event_of(event).mark();
    if (mark.valid()) mark.wait();
    return ISTHMUS_OK;
  });
}

isthmus_status event_elapsed(isthmus_event start, isthmus_event end, double* milliseconds) {
  return call_guarded([&] {
    Event& first = event_of(start);
    Event& last = event_of(end);
    require(first.timing && last.timing, "event_elapsed: create both events with ISTHMUS_EVENT_TIMING");
    const Mark begun = first.mark(), ended = last.mark();
    require(begun.valid() && ended.valid(), "event_elapsed: record both events first");
    if (!is_reached(begun) || !is_reached(ended)) {
      throw Failure{ISTHMUS_NOT_READY, "event_elapsed: an event is not complete; synchronize it first"};
    }
    *milliseconds = std::chrono::duration<double, std::milli>(ended.get() - begun.get()).count();
    return ISTHMUS_OK;
  });
}

// ---- The table; optional functions not set here are absent ----

isthmus_driver make_table() {
  isthmus_driver table{};
  table.struct_size = sizeof(table);
  table.version = ISTHMUS_DRIVER_VERSION;
  table.name = "sample";
  table.description = "Sample chip: two devices in software, from a package of its own";
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

extern "C" const isthmus_driver* isthmus_driver_get(uint32_t core_version) {
  if (core_version >> 16 != ISTHMUS_DRIVER_VERSION_MAJOR) return nullptr;
  static const isthmus_driver table = make_table();
  return &table;
}
