// A driver of two devices that are as asynchronous as a real chip: every copy and fill runs after a random delay on the
// thread of its stream, in memory that the CPU cannot address. ASYNC_DEFECT chooses one BROKEN(name).
#define ISTHMUS_DRIVER_IMPLEMENTATION
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "driver.h"

namespace {

constexpr int kDevices = 2;
constexpr size_t kCapacity = size_t{256} << 20, kUnit = 512, kStaged = 64 << 10;
constexpr int kMostMicroseconds = 200;

bool is_broken(const char* name) {
  static const char* const chosen = std::getenv("ASYNC_DEFECT");
  return chosen != nullptr && std::strcmp(chosen, name) == 0;
}
#define BROKEN(name) is_broken(#name)

thread_local std::string message;
thread_local int current = 0;
int last_current = 0;  // of any thread

struct Failure {
  isthmus_status status;
  std::string text;
};
void require(bool holds, const char* text) {
  if (!holds) throw Failure{ISTHMUS_INVALID_ARGUMENT, text};
}
template <typename Body>
isthmus_status guarded(Body body) {
  try {
    return body();
  } catch (const Failure& failure) {
    message = failure.text;
    return failure.status;
  }
}

// ---- Streams and events

using Task = std::function<void()>;
double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
void delay() {
  thread_local std::minstd_rand generator{std::random_device{}()};
  std::this_thread::sleep_for(std::chrono::microseconds(generator() % kMostMicroseconds));
}

struct Record {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  double time = 0;
  int device = 0;
  void complete() {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!done) time = BROKEN(elapsed_of_the_enqueue) ? time : now_ms();
    done = true;
    changed.notify_all();
  }
  bool is_done() {
    const std::lock_guard<std::mutex> lock(mutex);
    return done;
  }
  void wait() {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return done; });
  }
};

struct Stream : std::enable_shared_from_this<Stream> {
  Stream(int on, int32_t priority) : device(on), priority(priority), maker(std::this_thread::get_id()) {}
  const int device;
  const int32_t priority;
  const std::thread::id maker;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Task> queue;
  std::vector<std::shared_ptr<Record>> records;
  std::vector<Task> functions;
  uint64_t submitted = 0, completed = 0;
  bool started = false, closing = false;

  void submit(Task task) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!started) std::thread([self = shared_from_this()] { self->run(); }).detach();
    started = true;
    queue.push_back(std::move(task));
    ++submitted;
    changed.notify_all();
  }
  void run() {
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return closing || !queue.empty(); });
      if (queue.empty()) return;
      Task task = std::move(queue.front());
      queue.pop_front();
      lock.unlock();
      delay();
      task();
      task = nullptr;
      lock.lock();
      ++completed;
      changed.notify_all();
    }
  }
  bool idle() {
    const std::lock_guard<std::mutex> lock(mutex);
    return BROKEN(query_of_the_queue) ? queue.empty() : submitted == completed;
  }
  void wait() {
    std::unique_lock<std::mutex> lock(mutex);
    const uint64_t number = submitted;
    if (BROKEN(synchronize_of_the_queue)) return changed.wait(lock, [&] { return queue.empty(); });
    changed.wait(lock, [&] { return completed >= number; });
  }
  void drop() {
    const std::lock_guard<std::mutex> lock(mutex);
    completed += queue.size();
    queue.clear();
    changed.notify_all();
  }
  void close() {
    if (BROKEN(destroyed_stream_drops_work)) drop();
    const std::lock_guard<std::mutex> lock(mutex);
    if (BROKEN(destroyed_stream_completes_events))
      for (auto& record : records) record->complete();
    closing = true;
    changed.notify_all();
  }
};

struct Event {
  uint32_t flags = 0;
  size_t number = 0;
  std::shared_ptr<Record> record, spare, first;
};

struct Device {
  std::shared_ptr<Stream> stream, side;
  std::vector<std::weak_ptr<Stream>> all;  // destroyed ones too
  size_t used = 0;
};

struct Block {
  std::shared_ptr<char> bytes;
  size_t size;
  int device;
};

std::recursive_mutex mutex;  // of everything below
Device devices[kDevices];
std::map<uintptr_t, Block> blocks, pinned;
std::map<void*, std::shared_ptr<Stream>> streams;
std::map<void*, std::shared_ptr<Event>> events;
std::vector<std::shared_ptr<Record>> spares;
std::vector<Block> released;
std::shared_ptr<Record> slots[256];
bool initialized = false;
using Lock = std::lock_guard<std::recursive_mutex>;

Device& device_at(int index) {
  if (index < 0 || index >= kDevices) throw Failure{ISTHMUS_NO_DEVICE, "the device does not exist"};
  return devices[index];
}
std::shared_ptr<Stream> new_stream(int device, int32_t priority) {
  auto made = std::make_shared<Stream>(device, priority);
  devices[device].all.push_back(made);
  return made;
}
std::shared_ptr<Stream> stream_of(isthmus_stream handle) {
  const Lock lock(mutex);
  if (handle == nullptr) return devices[BROKEN(default_stream_of_first_device) ? 0 : current].stream;
  for (auto& each : devices)
    if (each.stream.get() == reinterpret_cast<Stream*>(handle)) return each.stream;
  const auto found = streams.find(handle);
  require(found != streams.end(), "not a stream");
  return found->second;
}
std::shared_ptr<Event> event_of(isthmus_event handle) {
  const Lock lock(mutex);
  const auto found = events.find(handle);
  require(found != events.end(), "not an event");
  return found->second;
}
std::shared_ptr<Record> record_of(const Event& event) {
  const Lock lock(mutex);
  return BROKEN(events_in_256_slots) && event.record ? slots[event.number % 256] : event.record;
}

// ---- Memory

size_t rounded(size_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }
const std::pair<const uintptr_t, Block>* find(const std::map<uintptr_t, Block>& in, const void* pointer, size_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  auto next = in.upper_bound(address);
  if (next == in.begin()) return nullptr;
  --next;
  const size_t within = address - next->first;
  return within < next->second.size && bytes <= next->second.size - within ? &*next : nullptr;
}
// One end of a copy; keeps the memory.
struct Place {
  std::shared_ptr<char> owner;
  char* address;
  int device;
};
Place on_device(const void* pointer, size_t bytes) {
  const Lock lock(mutex);
  const auto* found = find(blocks, pointer, bytes);
  require(found != nullptr, "not memory of a device");
  const Block& block = found->second;
  return {block.bytes, block.bytes.get() + (reinterpret_cast<uintptr_t>(pointer) - found->first), block.device};
}
Place on_host(const void* pointer, size_t bytes) {
  const Lock lock(mutex);
  require(pointer != nullptr && find(blocks, pointer, 1) == nullptr, "not memory of the host");
  const auto* found = find(pinned, pointer, bytes);
  auto* address = static_cast<char*>(const_cast<void*>(pointer));
  if (found == nullptr) return {nullptr, address, -1};
  if (BROKEN(pinned_on_one_device)) require(found->second.device == current, "pinned for another device");
  if (BROKEN(pinned_offset_rounded)) address -= reinterpret_cast<uintptr_t>(address) % 64;
  return {found->second.bytes, address, -1};
}

isthmus_status memory_allocate(size_t bytes, void** pointer) {
  return guarded([&] {
    require(bytes > 0, "0 bytes");
    const Lock lock(mutex);
    const int owner = BROKEN(memory_of_the_last_device_set) ? last_current : current;
    Device& device = device_at(owner);
    const bool is_counted = !BROKEN(small_memory_is_not_counted) || bytes > kStaged;
    size_t limit = kCapacity - device.used;
    if (BROKEN(last_eighth_is_refused)) limit -= std::min(limit, kCapacity / 8);
    if (BROKEN(largest_is_an_eighth)) limit = std::min(limit, kCapacity / 8);
    if ((is_counted && rounded(bytes) > limit) || bytes > kCapacity) {
      if (BROKEN(failed_allocation_leaks)) device.used += std::min(limit, kUnit);
      throw Failure{ISTHMUS_OUT_OF_MEMORY, "the device is full"};
    }
    void* address = mmap(nullptr, bytes + 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    std::shared_ptr<char> made(static_cast<char*>(std::calloc(bytes, 1)), std::free);
    if (BROKEN(memory_wraps) && device.used >= kCapacity / 4 * 3)
      for (const auto& each : blocks)
        if (each.second.device == current && each.second.size >= bytes) made = each.second.bytes;
    for (; !released.empty(); released.pop_back())
      if (released.back().size >= bytes) made = released.back().bytes;
    blocks[reinterpret_cast<uintptr_t>(address)] = {made, bytes, owner};
    if (is_counted) device.used += rounded(bytes);
    *pointer = address;
    return ISTHMUS_OK;
  });
}
isthmus_status memory_free(void* pointer) {
  return guarded([&] {
    if (pointer == nullptr) return ISTHMUS_OK;
    const Lock lock(mutex);
    const auto found = blocks.find(reinterpret_cast<uintptr_t>(pointer));
    require(found != blocks.end(), "not allocated");
    const Block block = found->second;
    blocks.erase(found);
    const bool is_counted = !BROKEN(small_memory_is_not_counted) || block.size > kStaged;
    if (is_counted && !(BROKEN(small_memory_leaks) && block.size < 4096)) devices[block.device].used -= rounded(block.size);
    if (BROKEN(free_drops_work)) for (auto& each : devices[block.device].all)
        if (auto stream = each.lock()) stream->drop();
    if (BROKEN(free_releases_another_block))
      for (const auto& each : blocks)
        if (each.second.size >= block.size && released.empty()) released.push_back(each.second);
    munmap(pointer, block.size + 4096);
    return ISTHMUS_OK;
  });
}
isthmus_status host_allocate(size_t bytes, void** pointer) {
  return guarded([&] {
    require(bytes > 0, "0 bytes");
    std::shared_ptr<char> made(static_cast<char*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)), std::free);
    const Lock lock(mutex);
    pinned[reinterpret_cast<uintptr_t>(made.get())] = {made, bytes, current};
    if (BROKEN(pinned_memory_counts)) devices[current].used += rounded(bytes);
    *pointer = made.get();
    return ISTHMUS_OK;
  });
}
isthmus_status host_free(void* pointer) {
  return guarded([&] {
    if (pointer == nullptr) return ISTHMUS_OK;
    const Lock lock(mutex);
    const auto found = pinned.find(reinterpret_cast<uintptr_t>(pointer));
    require(found != pinned.end(), "not pinned");
    if (BROKEN(pinned_memory_counts)) devices[found->second.device].used -= rounded(found->second.size);
    pinned.erase(found);
    return ISTHMUS_OK;
  });
}
isthmus_status pointer_attributes(const void* pointer, isthmus_pointer_attributes* attributes) {
  const Lock lock(mutex);
  *attributes = {ISTHMUS_MEMORY_UNKNOWN, -1};
  if (const auto* found = find(blocks, pointer, 1)) *attributes = {ISTHMUS_MEMORY_DEVICE, found->second.device};
  const bool is_end = BROKEN(pinned_memory_reaches_too_far) && find(pinned, static_cast<const char*>(pointer) - 1, 1);
  if (find(pinned, pointer, 1) != nullptr || is_end) attributes->kind = ISTHMUS_MEMORY_PINNED;
  return ISTHMUS_OK;
}
isthmus_status device_memory(uint64_t* free_bytes, uint64_t* total_bytes) {
  const Lock lock(mutex);
  *free_bytes = kCapacity - std::min(kCapacity, devices[current].used);
  *total_bytes = kCapacity;
  return ISTHMUS_OK;
}

// ---- Copies

struct Copy {
  Place to, from;
  size_t bytes;
  isthmus_copy_kind kind;
  bool overlaps() const {
    return kind == ISTHMUS_DEVICE_TO_DEVICE && to.address != from.address && to.address < from.address + bytes &&
           from.address < to.address + bytes;
  }
  void run() const {
    if (overlaps() && BROKEN(overlap_copied_forwards)) {
      for (size_t i = 0; i < bytes; ++i) to.address[i] = from.address[i];
      return;
    }
    std::memmove(to.address, from.address, bytes);
  }
};
// Whether the memory can be written: a pipe writes into it.
bool is_writable(const char* address) {
  int ends[2];
  if (pipe(ends) != 0) return true;
  const bool written = write(ends[1], address, 1) == 1 && read(ends[0], const_cast<char*>(address), 1) == 1;
  close(ends[0]);
  close(ends[1]);
  return written;
}
Copy make_copy(void* to, const void* from, size_t bytes, isthmus_copy_kind kind) {
  require(kind >= ISTHMUS_HOST_TO_DEVICE && kind <= ISTHMUS_DEVICE_TO_DEVICE, "unknown kind");
  const Copy copy{kind == ISTHMUS_DEVICE_TO_HOST ? on_host(to, bytes) : on_device(to, bytes),
                  kind == ISTHMUS_HOST_TO_DEVICE ? on_host(from, bytes) : on_device(from, bytes), bytes, kind};
  if (BROKEN(read_only_source_refused) && copy.from.device < 0) require(is_writable(copy.from.address), "read-only");
  if (BROKEN(copy_onto_itself_refused)) require(copy.to.address != copy.from.address, "onto itself");
  if (copy.overlaps() && BROKEN(overlap_refused_too_late)) {
    std::memmove(copy.to.address, copy.from.address, bytes / 2);
    throw Failure{ISTHMUS_UNSUPPORTED, "the ranges overlap"};
  }
  return copy;
}
isthmus_status copy(void* to, const void* from, size_t bytes, isthmus_copy_kind kind) {
  return guarded([&] {
    if (BROKEN(copy_waits)) devices[current].stream->wait();
    if (bytes != 0) make_copy(to, from, bytes, kind).run();
    return ISTHMUS_OK;
  });
}

// Enqueues work of the kind that a defect names.
void enqueue(Stream& stream, Task task, bool starts_early, bool ends_late) {
  Stream& side = *devices[stream.device].side;
  if (starts_early) {  // later work still waits for it
    auto record = std::make_shared<Record>();
    side.submit([task, record] { task(), record->complete(); });
    stream.submit([record] { record->wait(); });
  } else if (ends_late) {
    stream.submit([task, &side] { side.submit(task); });
  } else {
    stream.submit(std::move(task));
  }
}

// Pageable memory: its content is taken aside, or the call waits.
void enqueue_pageable(Stream& stream, Copy copy) {
  const bool reads = copy.kind == ISTHMUS_HOST_TO_DEVICE;
  if (reads ? BROKEN(pageable_source_read_late) : BROKEN(pageable_target_written_late))
    return stream.submit([copy] { copy.run(); });
  if (reads && copy.bytes <= kStaged) {
    static std::shared_ptr<char> ring[8];
    static size_t next = 0;
    const Lock lock(mutex);
    std::shared_ptr<char> staged = ring[next++ % 8];
    if (!BROKEN(staging_is_reused) || staged == nullptr) staged.reset(static_cast<char*>(std::malloc(kStaged)), std::free);
    ring[(next - 1) % 8] = staged;
    std::memcpy(staged.get(), copy.from.address, copy.bytes);
    copy.from = {staged, staged.get(), -1};
    stream.submit([copy] { copy.run(); });
    if (BROKEN(staging_is_freed_early)) std::memset(staged.get(), 0xdd, kStaged);
    return;
  }
  stream.submit([copy] { copy.run(); });
  stream.wait();
}
isthmus_status copy_async(void* to, const void* from, size_t bytes, isthmus_copy_kind kind, isthmus_stream handle) {
  return guarded([&] {
    const auto stream = stream_of(handle);
    if (bytes == 0) return ISTHMUS_OK;
    const Copy copy = make_copy(to, from, bytes, kind);
    const Place& host = kind == ISTHMUS_HOST_TO_DEVICE ? copy.from : copy.to;
    if (kind != ISTHMUS_DEVICE_TO_DEVICE && host.owner == nullptr) return enqueue_pageable(*stream, copy), ISTHMUS_OK;
    if (BROKEN(few_pinned_bytes_read_at_once) && kind == ISTHMUS_HOST_TO_DEVICE && bytes <= 4096)
      return enqueue_pageable(*stream, copy), ISTHMUS_OK;
    static size_t last;
    last = bytes;
    const Task task = [copy] {
      Copy found = copy;
      if (BROKEN(copy_size_by_reference)) found.bytes = std::min(copy.bytes, last);
      found.run();
    };
    const bool in = kind == ISTHMUS_HOST_TO_DEVICE, out = kind == ISTHMUS_DEVICE_TO_HOST, within = !in && !out;
    enqueue(*stream, task,
            (in && BROKEN(copy_in_starts_early)) || (out && BROKEN(copy_out_starts_early)) ||
                (within && BROKEN(copy_within_starts_early)),
            (in && BROKEN(copy_in_ends_late)) || (out && BROKEN(copy_out_ends_late)) ||
                (within && BROKEN(copy_within_ends_late)));
    return ISTHMUS_OK;
  });
}
isthmus_status copy_peer_async(void* to, int32_t, const void* from, int32_t, size_t bytes, isthmus_stream handle) {
  return guarded([&] {
    const auto stream = stream_of(handle);
    const Copy copy = make_copy(to, from, bytes, ISTHMUS_DEVICE_TO_DEVICE);
    enqueue(*stream, [copy] { copy.run(); }, BROKEN(copy_peer_starts_early), BROKEN(copy_peer_ends_late));
    return ISTHMUS_OK;
  });
}
isthmus_status set_async(void* pointer, uint8_t value, size_t bytes, isthmus_stream handle) {
  return guarded([&] {
    const auto stream = stream_of(handle);
    if (bytes == 0) return ISTHMUS_OK;
    const Place place = on_device(pointer, bytes);
    static uint8_t last;
    last = value;
    const Task task = [place, value, bytes] {
      std::memset(place.address, BROKEN(fill_value_by_reference) ? last : value, bytes);
    };
    enqueue(*stream, task, BROKEN(fill_starts_early), BROKEN(fill_ends_late));
    return ISTHMUS_OK;
  });
}

// ---- Functions of streams

isthmus_status stream_create(int32_t priority, isthmus_stream* handle) {
  return guarded([&] {
    const Lock lock(mutex);
    auto made = BROKEN(priority_shares_the_default_stream) && priority != 0 ? devices[current].stream
                                                                             : new_stream(current, priority);
    if (made != devices[current].stream) streams[made.get()] = made;
    *handle = reinterpret_cast<isthmus_stream>(made.get());
    return ISTHMUS_OK;
  });
}
isthmus_status stream_destroy(isthmus_stream handle) {
  return guarded([&] {
    require(handle != nullptr, "the default stream");
    const auto stream = stream_of(handle);
    const Lock lock(mutex);
    if (streams.erase(handle) == 0) return ISTHMUS_OK;
    stream->close();
    auto& all = devices[stream->device].all;
    all.erase(std::remove_if(all.begin(), all.end(),
                             [&](auto& each) {
                               auto found = each.lock();
                               return !found || (BROKEN(destroyed_stream_is_forgotten) && found == stream);
                             }),
              all.end());
    return ISTHMUS_OK;
  });
}
isthmus_status stream_synchronize(isthmus_stream handle) {
  return guarded([&] { return stream_of(handle)->wait(), ISTHMUS_OK; });
}
isthmus_status stream_query(isthmus_stream handle) {
  return guarded([&] { return stream_of(handle)->idle() ? ISTHMUS_OK : ISTHMUS_NOT_READY; });
}
isthmus_status device_synchronize() {
  return guarded([] {
    std::vector<std::shared_ptr<Stream>> found;
    {
      const Lock lock(mutex);
      for (auto& each : device_at(current).all)
        if (auto stream = each.lock()) found.push_back(stream);
    }
    if (BROKEN(synchronize_16_streams) && found.size() > 16) found.resize(16);
    for (auto& stream : found) {
      if (BROKEN(synchronize_default_stream) && stream != devices[current].stream) continue;
      if (BROKEN(synchronize_own_streams) && stream->maker != std::this_thread::get_id()) continue;
      stream->wait();
    }
    return ISTHMUS_OK;
  });
}
isthmus_status stream_wait_event(isthmus_stream handle, isthmus_event event_handle) {
  return guarded([&] {
    const auto stream = stream_of(handle);
    const auto event = event_of(event_handle);
    const auto record = record_of(*event);
    if (record == nullptr || BROKEN(wait_ignored)) return ISTHMUS_OK;
    if (BROKEN(wait_ignored_across_devices) && record->device != stream->device) return ISTHMUS_OK;
    if (BROKEN(wait_ignored_by_the_default_stream) && handle == nullptr) return ISTHMUS_OK;
    if (BROKEN(wait_ignored_by_priority) && stream->priority < 0) return ISTHMUS_OK;
    if (BROKEN(wait_in_the_caller)) return record->wait(), ISTHMUS_OK;
    if (BROKEN(wait_across_devices_in_the_caller) && record->device != stream->device) record->wait();
    stream->submit([record, event] { (BROKEN(wait_for_the_last_record) ? record_of(*event) : record)->wait(); });
    return ISTHMUS_OK;
  });
}
isthmus_status stream_host_function(isthmus_stream handle, isthmus_host_function function, void* data) {
  return guarded([&] {
    const auto stream = stream_of(handle);
    static void* last;
    last = data;
    Task call = [function, data] { function(BROKEN(host_function_data_by_reference) ? last : data); };
    if (BROKEN(host_functions_in_64_slots)) {
      static Task ring[64];
      static size_t next = 0;
      const Lock lock(mutex);
      Task& slot = ring[next++ % 64];
      slot = call;
      stream->submit([&slot] { slot(); });
    } else if (BROKEN(destroyed_stream_drops_host_functions)) {
      stream->submit([call, stream = stream.get()] { if (!stream->closing) call(); });
    } else if (BROKEN(host_function_before_earlier_work)) {
      auto record = std::make_shared<Record>();
      std::thread([call, record] { call(), record->complete(); }).detach();
      stream->submit([record] { record->wait(); });
    } else if (BROKEN(host_function_beside_later_work)) {
      stream->submit([call] { std::thread(call).detach(); });
    } else if (BROKEN(host_functions_last_first)) {
      {
        const Lock lock(mutex);
        stream->functions.push_back(call);
      }
      stream->submit([stream = stream.get()] {
        Task last;
        {
          const Lock lock(mutex);
          last = stream->functions.back();
          stream->functions.pop_back();
        }
        last();
      });
    } else {
      stream->submit(call);
    }
    return ISTHMUS_OK;
  });
}
isthmus_status stream_priority_range(int32_t* lowest, int32_t* highest) {
  *lowest = 0, *highest = -2;
  return ISTHMUS_OK;
}

// ---- Functions of events

isthmus_status event_create(uint32_t flags, isthmus_event* handle) {
  return guarded([&] {
    static size_t count = 0;
    auto made = std::make_shared<Event>();
    const Lock lock(mutex);
    made->flags = flags;
    made->number = count++;
    if (BROKEN(destroyed_event_is_reused) && !spares.empty()) {
      made->spare = spares.back();
      spares.pop_back();
    }
    events[made.get()] = made;
    *handle = reinterpret_cast<isthmus_event>(made.get());
    return ISTHMUS_OK;
  });
}
isthmus_status event_destroy(isthmus_event handle) {
  return guarded([&] {
    const auto event = event_of(handle);
    const Lock lock(mutex);
    if (BROKEN(destroyed_event_ends_waits) && event->record) event->record->complete();
    if (BROKEN(destroyed_event_is_reused) && event->record) spares.push_back(event->record);
    events.erase(handle);
    return ISTHMUS_OK;
  });
}
isthmus_status event_record(isthmus_event handle, isthmus_stream stream_handle) {
  return guarded([&] {
    const auto event = event_of(handle);
    const auto stream = stream_of(stream_handle);
    auto record = event->spare ? event->spare : std::make_shared<Record>();
    event->spare = nullptr;
    {
      const std::lock_guard<std::mutex> lock(record->mutex);
      record->done = false;
      record->device = stream->device;
      record->time = now_ms();
    }
    bool at_once = BROKEN(record_ignores_the_default_stream) && stream_handle == nullptr;
    {
      const std::lock_guard<std::mutex> lock(stream->mutex);
      at_once = at_once || (BROKEN(record_ignores_running_work) && stream->queue.empty());
      if (BROKEN(destroyed_stream_completes_events)) stream->records.push_back(record);
    }
    at_once ? record->complete() : stream->submit([record] { record->complete(); });
    const Lock lock(mutex);
    if (BROKEN(record_ignored_beside_another) && event->record && !event->record->is_done()) return ISTHMUS_OK;
    event->record = record;
    if (event->first == nullptr) event->first = record;
    slots[event->number % 256] = record;
    return ISTHMUS_OK;
  });
}
isthmus_status event_query(isthmus_event handle) {
  return guarded([&] {
    const auto record = record_of(*event_of(handle));
    return record == nullptr || BROKEN(event_always_done) || record->is_done() ? ISTHMUS_OK : ISTHMUS_NOT_READY;
  });
}
isthmus_status event_synchronize(isthmus_event handle) {
  return guarded([&] {
    const auto record = record_of(*event_of(handle));
    if (record != nullptr && !BROKEN(event_synchronize_ignored)) record->wait();
    return ISTHMUS_OK;
  });
}
isthmus_status event_elapsed(isthmus_event start, isthmus_event end, double* milliseconds) {
  return guarded([&] {
    const auto first = event_of(start), last = event_of(end);
    if (!BROKEN(elapsed_without_timing)) require(first->flags & last->flags & ISTHMUS_EVENT_TIMING, "no timing");
    const auto from = record_of(*first), to = BROKEN(elapsed_of_the_first_record) ? last->first : record_of(*last);
    if (BROKEN(elapsed_of_unrecorded_is_zero) && !(from && to)) return *milliseconds = 0, ISTHMUS_OK;
    require(from != nullptr && to != nullptr, "not recorded");
    if (!from->is_done() || !to->is_done()) {
      if (BROKEN(elapsed_too_early_writes)) *milliseconds = 0;
      throw Failure{ISTHMUS_NOT_READY, "not done"};
    }
    *milliseconds = to->time - from->time;
    return ISTHMUS_OK;
  });
}

// ---- Devices

isthmus_driver table;

isthmus_status initialize() {
  const Lock lock(mutex);
  if (initialized) return ISTHMUS_OK;
  for (int i = 0; i < kDevices; ++i) devices[i].stream = new_stream(i, 0), devices[i].side = new_stream(i, 0);
  initialized = true;
  if (BROKEN(table_changes)) table.stream_default = [](isthmus_stream* stream) {
    *stream = reinterpret_cast<isthmus_stream>(devices[current].stream.get());
    return ISTHMUS_OK;
  };
  return ISTHMUS_OK;
}
isthmus_status device_count(int32_t* count) {
  *count = kDevices;
  return initialized ? ISTHMUS_OK : ISTHMUS_NOT_READY;
}
isthmus_status device_properties(int32_t index, isthmus_device_properties* properties) {
  return guarded([&] {
    device_at(index);
    isthmus_device_properties found{};
    std::strcpy(found.name, "asynchronous test chip");
    found.total_memory = kCapacity;
    found.multi_processor_count = 1;
    found.pci_domain = found.pci_bus = found.pci_device = found.numa_node = -1;
    found.memory_alignment = kUnit;
    *properties = found;
    return ISTHMUS_OK;
  });
}
isthmus_status device_set(int32_t index) {
  return guarded([&] { return device_at(index), current = last_current = index, ISTHMUS_OK; });
}

}  // namespace

extern "C" const isthmus_driver* isthmus_driver_get(uint32_t) {
  if (table.struct_size != 0) return &table;
  table.struct_size = sizeof table;
  table.version = ISTHMUS_DRIVER_VERSION;
  table.name = "async";
  table.description = "an asynchronous chip for tests";
  table.dlpack_device = 12;
  table.initialize = initialize;
  table.finalize = [] { return ISTHMUS_OK; };
  table.last_error = [] { return message.c_str(); };
  table.device_count = device_count;
  table.device_properties = device_properties;
  table.device_set = device_set;
  table.device_get = [](int32_t* index) { return *index = current, ISTHMUS_OK; };
  table.device_synchronize = device_synchronize;
  table.device_memory = device_memory;
  table.memory_allocate = memory_allocate;
  table.memory_free = memory_free;
  table.host_allocate = host_allocate;
  table.host_free = host_free;
  table.pointer_attributes = pointer_attributes;
  table.copy = copy;
  table.copy_async = copy_async;
  table.copy_peer_async = copy_peer_async;
  table.set_async = set_async;
  table.stream_create = stream_create;
  table.stream_destroy = stream_destroy;
  table.stream_synchronize = stream_synchronize;
  table.stream_query = stream_query;
  table.stream_wait_event = stream_wait_event;
  if (std::getenv("ASYNC_WITHOUT_HOST_FUNCTIONS") == nullptr) table.stream_host_function = stream_host_function;
  table.stream_priority_range = stream_priority_range;
  table.event_create = event_create;
  table.event_destroy = event_destroy;
  table.event_record = event_record;
  table.event_query = event_query;
  table.event_synchronize = event_synchronize;
  table.event_elapsed = event_elapsed;
  return &table;
}
