#include "core/runtime.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <mutex>
#include <vector>

namespace isthmus {
namespace {

struct State {
  const isthmus_driver* table = nullptr;
  std::string path;
  std::string error;  // why the devices cannot be used
  std::mutex mutex;
  std::atomic<bool> initialized{false};
  std::atomic<bool> forked{false};
  std::atomic<int> count{-1};
  std::atomic<int64_t> set_device_calls{0};
};

// Leaked: device memory may be freed by static destructors that run after ours would.
State& state() {
  static State& instance = *new State;
  return instance;
}

thread_local c10::DeviceIndex tls_device = 0;
thread_local c10::DeviceIndex tls_driver_device = -1;

struct Mandatory {
  const char* name;
  size_t offset;
};

#define ISTHMUS_MANDATORY(member) \
  Mandatory { #member, offsetof(isthmus_driver, member) }
const Mandatory kMandatory[] = {
    ISTHMUS_MANDATORY(name),
    ISTHMUS_MANDATORY(description),
    ISTHMUS_MANDATORY(initialize),
    ISTHMUS_MANDATORY(finalize),
    ISTHMUS_MANDATORY(last_error),
    ISTHMUS_MANDATORY(device_count),
    ISTHMUS_MANDATORY(device_properties),
    ISTHMUS_MANDATORY(device_set),
    ISTHMUS_MANDATORY(device_get),
    ISTHMUS_MANDATORY(device_synchronize),
    ISTHMUS_MANDATORY(device_memory),
    ISTHMUS_MANDATORY(memory_allocate),
    ISTHMUS_MANDATORY(memory_free),
    ISTHMUS_MANDATORY(host_allocate),
    ISTHMUS_MANDATORY(host_free),
    ISTHMUS_MANDATORY(pointer_attributes),
    ISTHMUS_MANDATORY(copy),
    ISTHMUS_MANDATORY(copy_async),
    ISTHMUS_MANDATORY(set_async),
    ISTHMUS_MANDATORY(stream_create),
    ISTHMUS_MANDATORY(stream_destroy),
    ISTHMUS_MANDATORY(stream_synchronize),
    ISTHMUS_MANDATORY(stream_query),
    ISTHMUS_MANDATORY(stream_wait_event),
    ISTHMUS_MANDATORY(event_create),
    ISTHMUS_MANDATORY(event_destroy),
    ISTHMUS_MANDATORY(event_record),
    ISTHMUS_MANDATORY(event_query),
    ISTHMUS_MANDATORY(event_synchronize),
    ISTHMUS_MANDATORY(event_elapsed),
};
#undef ISTHMUS_MANDATORY

// Members of a group come together or not at all; the first one stands for the group.
struct Group {
  const char* name;
  std::vector<Mandatory> members;
};

#define ISTHMUS_MEMBER(member) {#member, offsetof(isthmus_driver, member)}
const std::vector<Group>& groups() {
  static const std::vector<Group> all = {
      {"collectives",
       {ISTHMUS_MEMBER(comm_unique_id), ISTHMUS_MEMBER(comm_create), ISTHMUS_MEMBER(comm_destroy),
        ISTHMUS_MEMBER(comm_abort), ISTHMUS_MEMBER(comm_error), ISTHMUS_MEMBER(all_reduce),
        ISTHMUS_MEMBER(reduce), ISTHMUS_MEMBER(broadcast), ISTHMUS_MEMBER(all_gather),
        ISTHMUS_MEMBER(reduce_scatter), ISTHMUS_MEMBER(send), ISTHMUS_MEMBER(receive),
        ISTHMUS_MEMBER(group_start), ISTHMUS_MEMBER(group_end)}},
      {"virtual memory",
       {ISTHMUS_MEMBER(virtual_granularity), ISTHMUS_MEMBER(virtual_reserve), ISTHMUS_MEMBER(virtual_release),
        ISTHMUS_MEMBER(virtual_create), ISTHMUS_MEMBER(virtual_destroy), ISTHMUS_MEMBER(virtual_map),
        ISTHMUS_MEMBER(virtual_unmap)}},
      {"export and import",
       {ISTHMUS_MEMBER(memory_export), ISTHMUS_MEMBER(memory_import), ISTHMUS_MEMBER(memory_close),
        ISTHMUS_MEMBER(event_export), ISTHMUS_MEMBER(event_import)}},
      {"activity records",
       {ISTHMUS_MEMBER(activity_start), ISTHMUS_MEMBER(activity_stop),
        ISTHMUS_MEMBER(activity_push_correlation)}},
  };
  return all;
}
#undef ISTHMUS_MEMBER

bool member_present(const isthmus_driver& table, size_t offset) {
  if (table.struct_size < offset + sizeof(void*)) return false;
  return *reinterpret_cast<void* const*>(reinterpret_cast<const char*>(&table) + offset) != nullptr;
}

void check_table(const isthmus_driver& table, const std::string& path) {
  const uint32_t major = table.version >> 16;
  TORCH_CHECK(major == ISTHMUS_DRIVER_VERSION_MAJOR, "driver ", path, " implements interface version ", major,
              ".", table.version & 0xffff, "; this Isthmus speaks version ", ISTHMUS_DRIVER_VERSION_MAJOR,
              ". Install a driver built for it.");
  for (const Mandatory& function : kMandatory)
    TORCH_CHECK(member_present(table, function.offset), "driver ", path, " lacks the mandatory function ",
                function.name, "; see driver.h.");
  for (const Group& group : groups())
    for (const Mandatory& function : group.members)
      TORCH_CHECK(member_present(table, function.offset) == member_present(table, group.members[0].offset),
                  "driver ", path, " has the group \"", group.name, "\" in part: ", function.name,
                  " does not agree with ", group.members[0].name, "; see driver.h.");
  TORCH_CHECK(table.delegate == ISTHMUS_DELEGATE_NONE || ISTHMUS_HAS(table, host_window), "driver ", path,
              " declares a delegate but has no host_window; see driver.h.");
}

void initialize_driver(State& s) {
  std::lock_guard<std::mutex> lock(s.mutex);
  if (s.initialized.load(std::memory_order_acquire)) return;
  TORCH_CHECK(s.table != nullptr, "no chip driver is open; `isthmus doctor` says why.");
  const isthmus_status status = s.table->initialize();
  if (status != ISTHMUS_OK) {
    s.error = s.table->last_error();
    s.count.store(0, std::memory_order_release);
    TORCH_CHECK(false, "driver ", s.table->name, " cannot be initialised: ", s.error);
  }
  pthread_atfork(nullptr, nullptr, [] { state().forked.store(true); });
  s.initialized.store(true, std::memory_order_release);
}

// A driver that can be asked before it is initialised leaves the process free to fork after the question.
int count_devices(State& s) {
  TORCH_CHECK(s.table != nullptr, "no chip driver is open; `isthmus doctor` says why.");
  int32_t count = 0;
  isthmus_status status = s.table->device_count(&count);
  if (status == ISTHMUS_NOT_READY) status = driver().device_count(&count);
  check(status, "device count");
  return count < kMaxDevices ? count : kMaxDevices;
}

}  // namespace

void open_driver(const std::string& path) {
  State& s = state();
  TORCH_CHECK(s.table == nullptr, "a chip driver is open already: ", s.path,
              ". One process uses one driver.");
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  TORCH_CHECK(library != nullptr, "driver ", path, " cannot be opened: ", dlerror());
  auto get = reinterpret_cast<isthmus_driver_get_fn>(dlsym(library, ISTHMUS_DRIVER_SYMBOL));
  TORCH_CHECK(get != nullptr, "driver ", path, " does not export ", ISTHMUS_DRIVER_SYMBOL,
              "; it is not an Isthmus driver.");
  const isthmus_driver* table = get(ISTHMUS_DRIVER_VERSION);
  TORCH_CHECK(table != nullptr, "driver ", path, " does not serve interface version ",
              ISTHMUS_DRIVER_VERSION_MAJOR, "; install a driver built for it.");
  check_table(*table, path);
  s.path = path;
  s.table = table;
}

const isthmus_driver* driver_table() noexcept { return state().table; }

const std::string& driver_path() noexcept { return state().path; }

bool driver_initialized() noexcept { return state().initialized.load(std::memory_order_acquire); }

bool in_bad_fork() noexcept { return state().forked.load(std::memory_order_relaxed); }

const isthmus_driver& driver() {
  State& s = state();
  TORCH_CHECK(!s.forked.load(std::memory_order_relaxed),
              "the chip cannot be used in a process forked after its first use. Use the spawn start method.");
  if (C10_UNLIKELY(!s.initialized.load(std::memory_order_acquire))) initialize_driver(s);
  return *s.table;
}

void check(isthmus_status status, const char* what) {
  if (C10_LIKELY(status == ISTHMUS_OK)) return;
  const char* message = state().table->last_error();
  TORCH_CHECK_WITH(OutOfMemoryError, status != ISTHMUS_OUT_OF_MEMORY, what, ": ", message);
  TORCH_CHECK(false, what, ": ", message);
}

c10::DeviceIndex device_count() noexcept {
  State& s = state();
  if (s.forked.load(std::memory_order_relaxed)) return 0;
  const int known = s.count.load(std::memory_order_acquire);
  if (C10_LIKELY(known >= 0)) return static_cast<c10::DeviceIndex>(known);
  try {
    const int count = count_devices(s);
    s.count.store(count, std::memory_order_release);
    return static_cast<c10::DeviceIndex>(count);
  } catch (const std::exception& error) {
    const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
    s.error = c10_error ? c10_error->what_without_backtrace() : error.what();
    return 0;
  }
}

const std::string& device_error() noexcept { return state().error; }

c10::DeviceIndex current_device() noexcept { return tls_device; }

void check_device(c10::DeviceIndex device) {
  if (C10_UNLIKELY(in_bad_fork())) driver();  // says why there are none
  const int count = device_count();
  TORCH_CHECK(device >= 0 && device < count, "chip:", static_cast<int>(device), " does not exist: ", count,
              count == 1 ? " device is" : " devices are", " there (numbered from 0).");
}

void set_current_device(c10::DeviceIndex device) {
  if (device != tls_device || device == 0) check_device(device);
  tls_device = device;
}

c10::DeviceIndex exchange_device(c10::DeviceIndex device) {
  const c10::DeviceIndex previous = tls_device;
  if (device >= 0 && device != previous) set_current_device(device);
  return previous;
}

void restore_device(c10::DeviceIndex device) noexcept { tls_device = device; }

void use_device(c10::DeviceIndex device) {
  if (C10_LIKELY(device == tls_driver_device)) return;
  check(driver().device_set(device), "set device");
  state().set_device_calls.fetch_add(1, std::memory_order_relaxed);
  tls_driver_device = device;
}

int64_t set_device_calls() noexcept { return state().set_device_calls.load(std::memory_order_relaxed); }

void reset_set_device_calls() noexcept { state().set_device_calls.store(0, std::memory_order_relaxed); }

}  // namespace isthmus
