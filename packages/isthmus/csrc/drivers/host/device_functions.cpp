// Initialisation and finalisation of the driver, and its devices.
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include "config.h"
#include "device.h"
#include "error.h"
#include "machine.h"
#include "parts.h"

namespace isthmus::host {
namespace {

void mark_forked() {
  State ready = State::kReady;
  driver_state.compare_exchange_strong(ready, State::kForked);
}

void make_runtime() {
  auto made = std::make_unique<Runtime>();
  made->config = read_config();
  for (int32_t index = 0; index < made->config.devices; ++index) {
    made->devices.push_back(std::make_unique<Device>(index, made->config));
  }
  if (pthread_atfork(nullptr, nullptr, mark_forked) != 0) fail(ISTHMUS_INTERNAL, "pthread_atfork failed");
  set_runtime(std::move(made));
  driver_state.store(State::kReady, std::memory_order_release);
}

isthmus_status initialize() {
  static std::mutex mutex;
  // A forked child must not touch the mutex, which another thread may have held.
  State state = driver_state.load(std::memory_order_acquire);
  if (state == State::kReady) return ISTHMUS_OK;
  if (state != State::kNew) return refuse_call();
  const std::lock_guard<std::mutex> lock(mutex);
  if (driver_state.load(std::memory_order_acquire) == State::kReady) return ISTHMUS_OK;
  return call_guarded([] {
    make_runtime();
    return ISTHMUS_OK;
  });
}

isthmus_status finalize() {
  return call([] {
    State ready = State::kReady;
    if (!driver_state.compare_exchange_strong(ready, State::kFinalized)) return refuse_call();
    for (const auto& device : runtime().devices) {
      const auto streams = device->streams();
      for (const auto& stream : streams) stream->close();
      for (const auto& stream : streams) stream->join();
      if (DeviceMemory* memory = device->memory_if_open()) memory->leave();
    }
    return ISTHMUS_OK;
  });
}

// Stable over reboots and distinct between machines, without revealing the machine's id.
void write_uuid(int32_t device, char (&uuid)[64]) {
  std::string id;
  std::ifstream("/etc/machine-id") >> id;
  if (id.empty()) {
    uuid[0] = '\0';
    return;
  }
  uint64_t hash = 14695981039346656037ull;  // FNV-1a
  for (const char c : "isthmus host chip " + id)
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  std::snprintf(uuid, sizeof(uuid), "host-%016llx-%d", static_cast<unsigned long long>(hash), device);
}

bool has_native_bfloat16() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kAmxBf16 = 1u << 22, kAvx512Bf16 = 1u << 5;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kAmxBf16) != 0) return true;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & kAvx512Bf16) != 0;
#elif defined(__aarch64__)
  constexpr unsigned long kHwcap2Bf16 = 1ul << 14;
  return (getauxval(AT_HWCAP2) & kHwcap2Bf16) != 0;
#else
  return false;
#endif
}

int32_t usable_processors() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

// Before initialize() only the environment is available.
isthmus_status device_count(int32_t* count) {
  const auto body = [&] {
    require_not_null(count, "device_count", "count");
    const bool ready = driver_state.load(std::memory_order_acquire) == State::kReady;
    *count = ready ? static_cast<int32_t>(runtime().devices.size()) : read_config().devices;
    return ISTHMUS_OK;
  };
  return driver_state.load(std::memory_order_acquire) == State::kNew ? call_guarded(body) : call(body);
}

isthmus_status device_properties(int32_t index, isthmus_device_properties* properties) {
  return call([&] {
    require_not_null(properties, "device_properties", "properties");
    const Device& device = device_at(index);
    isthmus_device_properties found{};
    std::snprintf(found.name, sizeof(found.name), "Isthmus host chip");
    write_uuid(index, found.uuid);
    found.total_memory = device.capacity();
    found.capability_major = 1;
    found.multi_processor_count = usable_processors();
    found.pci_domain = found.pci_bus = found.pci_device = -1;
    found.numa_node = -1;
    found.memory_alignment = DeviceMemory::kAlignment;
    found.flags = ISTHMUS_PROPERTY_INTEGRATED | (has_native_bfloat16() ? ISTHMUS_PROPERTY_BFLOAT16 : 0);
    *properties = found;
    return ISTHMUS_OK;
  });
}

isthmus_status device_set(int32_t index) {
  return call([&] {
    set_current_device(index);
    return ISTHMUS_OK;
  });
}

isthmus_status device_get(int32_t* index) {
  return call([&] {
    require_not_null(index, "device_get", "device");
    *index = current_device_index();
    return ISTHMUS_OK;
  });
}

isthmus_status device_synchronize() {
  return call([] {
    isthmus_status status = ISTHMUS_OK;
    for (const auto& stream : current_device().streams()) {
      try {
        stream->synchronize();
      } catch (const Failure& failure) {  // still wait for the other streams
        if (status == ISTHMUS_OK) status = set_last_error(failure.status, failure.message.c_str());
      }
    }
    return status;
  });
}

isthmus_status device_memory(uint64_t* free_bytes, uint64_t* total_bytes) {
  return call([&] {
    require_not_null(free_bytes, "device_memory", "free_bytes");
    require_not_null(total_bytes, "device_memory", "total_bytes");
    Device& device = current_device();
    const Ledger::Usage usage = device.memory().usage();
    const uint64_t held = usage.own + usage.others;
    *total_bytes = device.capacity();
    const uint64_t free_here = held < device.capacity() ? device.capacity() - held : 0;
    // Other devices and other programs take from the same memory.
    *free_bytes = std::min(free_here, available_memory());
    return ISTHMUS_OK;
  });
}

}  // namespace

void add_device_functions(isthmus_driver& table) {
  table.initialize = initialize;
  table.finalize = finalize;
  table.last_error = [] { return host::last_error(); };
  table.device_count = device_count;
  table.device_properties = device_properties;
  table.device_set = device_set;
  table.device_get = device_get;
  table.device_synchronize = device_synchronize;
  table.device_memory = device_memory;
}

}  // namespace isthmus::host
