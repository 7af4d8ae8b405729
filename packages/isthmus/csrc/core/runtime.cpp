#include "core/runtime.h"

#include <c10/util/Exception.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "core/cuda_answers.h"
#include "core/profiler.h"
#include "core/visible_devices.h"
#include "loader/loader.h"

namespace isthmus {
namespace {

struct State {
  const isthmus_driver* table = nullptr;  // &opened, once it is
  isthmus_driver opened{};
  std::string path;
  std::string name;   // if it replaces the driver's own
  std::string error;  // why the devices cannot be used
  std::mutex mutex;
  std::atomic<bool> initialized{false};
  std::atomic<bool> forked{false};
  std::atomic<bool> cuda_words{false};
  std::atomic<int> count{-1};
  std::atomic<int64_t> set_device_calls{0};
  std::once_flag registered;
  std::function<void()> registration;
};

// Leaked: device memory may be freed by static destructors that run later than this one would.
State& state() {
  static State& instance = *new State;
  return instance;
}

thread_local c10::DeviceIndex tls_device = 0;
thread_local c10::DeviceIndex tls_driver_device = -1;

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
  int32_t count = 0;  // from now on it stays
  if (s.table->device_count(&count) == ISTHMUS_OK) s.count.store(std::min(count, kMaxDevices));
}

// If the driver can count devices before it is initialised, the process may still fork afterwards.
int count_devices(State& s) {
  TORCH_CHECK(s.table != nullptr, "no chip driver is open; `isthmus doctor` says why.");
  int32_t count = 0;
  isthmus_status status = s.table->device_count(&count);
  if (status == ISTHMUS_NOT_READY) status = driver().device_count(&count);
  check(status, "device count");
  return std::min(count, kMaxDevices);
}

}  // namespace

void open_driver(const std::string& path, const std::string& name, const std::string& delegate) {
  State& s = state();
  TORCH_CHECK(s.table == nullptr, "a chip driver is open already: ", s.path,
              ". One process uses one driver.");
  s.name = name;
  char error[4096];
  const int failed =
      isthmus_open_driver(path.c_str(), s.name.c_str(), delegate.c_str(), &s.opened, error, sizeof error);
  TORCH_CHECK(failed == 0, error);
  number_visible_devices(s.opened);
  s.path = path;
  s.table = &s.opened;
}

const isthmus_driver* driver_table() noexcept { return state().table; }

const std::string& driver_path() noexcept { return state().path; }

bool driver_initialized() noexcept { return state().initialized.load(std::memory_order_acquire); }

bool in_bad_fork() noexcept { return state().forked.load(std::memory_order_relaxed); }

bool uses_cuda_words() noexcept { return state().cuda_words.load(std::memory_order_relaxed); }

void set_cuda_words(bool uses) noexcept { state().cuda_words.store(uses, std::memory_order_relaxed); }

void defer_registration(std::function<void()> function) { state().registration = std::move(function); }

void finish_registration() {
  State& s = state();
  if (s.registration) std::call_once(s.registered, s.registration);
}

const isthmus_driver& driver() {
  State& s = state();
  TORCH_CHECK(!s.forked.load(std::memory_order_relaxed),
              s.cuda_words ? "Cannot re-initialize CUDA in forked subprocess: " : "",
              "the chip cannot be used in a process forked after its first use. Use the spawn start method.");
  if (C10_UNLIKELY(!s.initialized.load(std::memory_order_acquire))) {
    finish_registration();
    initialize_driver(s);
  }
  return *s.table;
}

void check(isthmus_status status, const char* what) {
  if (C10_LIKELY(status == ISTHMUS_OK)) return;
  const char* message = state().table->last_error();
  TORCH_CHECK_WITH(OutOfMemoryError, status != ISTHMUS_OUT_OF_MEMORY, what, ": ", message);
  if (status == ISTHMUS_DEVICE_ERROR)
    throw c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, status,
                                std::string(what) + ": " + message);
  TORCH_CHECK(false, what, ": ", message);
}

c10::DeviceIndex device_count() noexcept {
  State& s = state();
  if (s.forked.load(std::memory_order_relaxed)) return 0;
  const int known = s.count.load(std::memory_order_acquire);
  if (C10_LIKELY(known >= 0)) return static_cast<c10::DeviceIndex>(known);
  try {
    return static_cast<c10::DeviceIndex>(count_devices(s));
  } catch (const std::exception& error) {
    const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
    s.error = c10_error ? c10_error->what_without_backtrace() : error.what();
    return 0;
  }
}

c10::DeviceIndex counted_devices() noexcept {
  if (!in_bad_fork()) return device_count();
  return static_cast<c10::DeviceIndex>(std::max(0, state().count.load(std::memory_order_acquire)));
}

const std::string& device_error() noexcept { return state().error; }

c10::DeviceIndex current_device() noexcept { return tls_device; }

void check_device(c10::DeviceIndex device) {
  if (C10_UNLIKELY(in_bad_fork())) driver();  // throws with the reason
  const int count = device_count();
  TORCH_CHECK(device >= 0 && device < count, "chip:", static_cast<int>(device), " does not exist: ", count,
              count == 1 ? " device available, chip:0" : " devices available, from chip:0");
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
  const profiler::Call call("chipSetDevice");
  check(driver().device_set(device), "set device");
  state().set_device_calls.fetch_add(1, std::memory_order_relaxed);
  tls_driver_device = device;
}

std::pair<uint64_t, uint64_t> free_and_total(c10::DeviceIndex device) {
  uint64_t free_bytes = 0, total_bytes = 0;
  const isthmus_driver& table = driver();
  use_device(device);
  check(table.device_memory(&free_bytes, &total_bytes), "memory of device");
  return {free_bytes, total_bytes};
}

int64_t set_device_calls() noexcept { return state().set_device_calls.load(std::memory_order_relaxed); }

void reset_set_device_calls() noexcept { state().set_device_calls.store(0, std::memory_order_relaxed); }

namespace {
std::atomic<void (*)(const std::function<void()>&)> call_without_gil{nullptr};
}  // namespace

void without_gil(const std::function<void()>& function) {
  const auto call = call_without_gil.load();
  call == nullptr ? function() : call(function);
}

void set_without_gil(void (*call)(const std::function<void()>&)) { call_without_gil = call; }

}  // namespace isthmus
