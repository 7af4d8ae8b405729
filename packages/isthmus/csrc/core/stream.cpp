#include "core/stream.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <unordered_map>

#include "core/host_work.h"
#include "core/profiler.h"

namespace isthmus {
namespace {

constexpr int kPoolSize = 32;         // streams per device and priority, returned in turn, like CUDA's pool
constexpr int kMaxStreams = 1 << 14;  // limit of the whole process

struct Entry {
  std::atomic<isthmus_stream> handle{nullptr};
  c10::DeviceIndex device = 0;
  bool external = false;
  int priority = ISTHMUS_STREAM_PRIORITY_DEFAULT;
  // Work that drain() has to wait for: submitted but not yet seen done by a synchronisation.
  std::atomic<uint64_t> submitted{0};
  std::atomic<uint64_t> completed{0};
};

struct Pool {
  std::array<c10::StreamId, kPoolSize> ids{};  // 0: not created yet
  unsigned next = 0;
};

struct Registry {
  std::array<Entry, kMaxDevices> defaults;
  std::array<std::atomic<Entry*>, kMaxStreams> entries{};  // keyed by id; slot 0 is unused
  std::mutex mutex;
  int used = 1;
  std::unordered_map<int64_t, Pool> pools;  // keyed by device and priority
  std::unordered_map<void*, c10::StreamId> external;
};

Registry& registry() {
  static Registry& instance = *new Registry;
  return instance;
}

thread_local std::array<c10::StreamId, kMaxDevices> tls_current{};

std::atomic<void (*)(c10::Stream)> stream_waited{nullptr};

void tell_stream_waited(c10::Stream stream) {
  const auto function = stream_waited.load(std::memory_order_acquire);
  if (C10_UNLIKELY(function != nullptr)) function(stream);
}

c10::Stream make_stream(c10::DeviceIndex device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kChip, device), id);
}

Entry& entry(c10::Stream stream) {
  if (C10_LIKELY(stream.id() == 0)) return registry().defaults[stream.device_index()];
  Entry* found = stream.id() > 0 && stream.id() < kMaxStreams
                     ? registry().entries[stream.id()].load(std::memory_order_acquire)
                     : nullptr;
  TORCH_CHECK(found != nullptr, "stream ", stream.id(), " of chip:", static_cast<int>(stream.device_index()),
              " does not exist in this process.");
  return *found;
}

// The registry's mutex is held.
c10::StreamId add_entry(isthmus_stream handle, c10::DeviceIndex device, bool external,
                        int priority = ISTHMUS_STREAM_PRIORITY_DEFAULT) {
  Registry& r = registry();
  TORCH_CHECK(r.used < kMaxStreams, "this process has ", kMaxStreams, " chip streams already.");
  auto* created = new Entry;
  created->handle = handle;
  created->device = device;
  created->external = external;
  created->priority = priority;
  r.entries[r.used].store(created, std::memory_order_release);
  return r.used++;
}

}  // namespace

c10::Stream default_stream(c10::DeviceIndex device) {
  return make_stream(device < 0 ? current_device() : device, 0);
}

c10::Stream current_stream(c10::DeviceIndex device) noexcept {
  if (device < 0) device = current_device();
  return make_stream(device, tls_current[device]);
}

void set_current_stream(c10::Stream stream) {
  entry(stream);  // throws for an unknown stream
  tls_current[stream.device_index()] = stream.id();
}

c10::Stream new_stream(c10::DeviceIndex device, int priority) {
  if (device < 0) device = current_device();
  check_device(device);
  const PriorityRange range = stream_priority_range();
  priority = std::clamp(priority, range.highest, range.lowest);
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  Pool& pool = r.pools[(static_cast<int64_t>(device) << 32) | static_cast<uint32_t>(priority)];
  c10::StreamId& id = pool.ids[pool.next++ % kPoolSize];
  if (id == 0) {
    isthmus_stream handle = nullptr;
    use_device(device);
    check(driver().stream_create(priority, &handle), "create stream");
    id = add_entry(handle, device, false, priority);
  }
  return make_stream(device, id);
}

c10::Stream stream_from_pool(c10::DeviceIndex device, bool high_priority) {
  return new_stream(device,
                    high_priority ? stream_priority_range().highest : ISTHMUS_STREAM_PRIORITY_DEFAULT);
}

PriorityRange stream_priority_range() {
  int32_t lowest = ISTHMUS_STREAM_PRIORITY_DEFAULT, highest = ISTHMUS_STREAM_PRIORITY_DEFAULT;
  if (ISTHMUS_HAS(driver(), stream_priority_range))
    check(driver().stream_priority_range(&lowest, &highest), "stream priorities");
  return {lowest, highest};
}

int stream_priority(c10::Stream stream) { return entry(stream).priority; }

c10::Stream external_stream(void* native, c10::DeviceIndex device) {
  if (device < 0) device = current_device();
  check_device(device);
  if (native == nullptr) return default_stream(device);
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  if (r.defaults[device].handle.load() == native) return default_stream(device);
  for (int id = 1; id < r.used; ++id)
    if (r.entries[id].load()->handle == native && r.entries[id].load()->device == device)
      return make_stream(device, id);
  c10::StreamId& id = r.external[native];
  if (id == 0) {
    isthmus_stream handle = static_cast<isthmus_stream>(native);
    if (ISTHMUS_HAS(driver(), stream_wrap)) check(driver().stream_wrap(native, &handle), "wrap stream");
    id = add_entry(handle, device, true);
  }
  return make_stream(device, id);
}

isthmus_stream stream_handle(c10::Stream stream) {
  Entry& e = entry(stream);
  isthmus_stream handle = e.handle.load(std::memory_order_acquire);
  if (C10_LIKELY(handle != nullptr) || stream.id() != 0) return handle;
  // Null is the default stream of the device current on the thread; its handle, where it has one, is good
  // whatever device is.
  use_device(stream.device_index());
  if (ISTHMUS_HAS(driver(), stream_default)) {
    check(driver().stream_default(&handle), "default stream");
    e.handle.store(handle, std::memory_order_release);
  }
  return handle;
}

c10::StreamId stream_id(isthmus_stream handle, c10::DeviceIndex device) noexcept {
  Registry& r = registry();
  if (device < 0 || device >= kMaxDevices) return -1;
  if (handle == nullptr || r.defaults[device].handle.load(std::memory_order_relaxed) == handle) return 0;
  for (int id = 1; id < kMaxStreams; ++id) {
    const Entry* found = r.entries[id].load(std::memory_order_acquire);
    if (found == nullptr) break;
    if (found->handle.load(std::memory_order_relaxed) == handle && found->device == device) return id;
  }
  return -1;
}

void mark_busy(c10::Stream stream) noexcept {
  entry(stream).submitted.fetch_add(1, std::memory_order_release);
}

void drain(c10::Stream stream) {
  Entry& e = entry(stream);
  if (C10_LIKELY(e.completed.load(std::memory_order_acquire) >= e.submitted.load(std::memory_order_acquire) &&
                 !e.external))
    return;
  synchronize_stream(stream);
}

void synchronize_stream(c10::Stream stream) {
  Entry& e = entry(stream);
  const uint64_t seen = e.submitted.load(std::memory_order_acquire);
  const profiler::Call call("chipStreamSynchronize");
  const isthmus_stream handle = stream_handle(stream);
  const isthmus_status status = wait_for_host_work([&] { return driver().stream_synchronize(handle); });
  check_waited(status, stream, "synchronize stream");
  uint64_t done = e.completed.load(std::memory_order_relaxed);
  while (done < seen && !e.completed.compare_exchange_weak(done, seen, std::memory_order_release)) {
  }
  throw_failure_of(stream);
}

void synchronize_device(c10::DeviceIndex device) {
  if (device < 0) device = current_device();
  check_device(device);
  use_device(device);
  const profiler::Call call("chipDeviceSynchronize");
  const isthmus_status status = wait_for_host_work([] { return driver().device_synchronize(); });
  check_waited(status, current_stream(device), "synchronize device");
  throw_failure_of(device);
}

void check_waited(isthmus_status status, c10::Stream stream, const char* what) {
  if (C10_LIKELY(status == ISTHMUS_OK)) return tell_stream_waited(stream);
  try {
    check(status, what);
  } catch (const c10::Error&) {
    tell_stream_waited(stream);
    throw;
  }
}

bool query_stream(c10::Stream stream) {
  const isthmus_status status = driver().stream_query(stream_handle(stream));
  if (status == ISTHMUS_NOT_READY) return false;
  check(status, "query stream");
  return true;
}

void set_stream_waited(void (*function)(c10::Stream)) { stream_waited = function; }

}  // namespace isthmus
