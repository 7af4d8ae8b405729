// The opened driver, and the current device of each thread.
#pragma once

#include <c10/core/AutogradState.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "driver.h"

namespace isthmus {

constexpr c10::DeviceType kChip = c10::DeviceType::PrivateUse1;
constexpr int kMaxDevices = 64;

// Opens the library at path and checks its table (for name and delegate see loader.h). Throws
// c10::Error with one line. Does not initialise it.
void open_driver(const std::string& path, const std::string& name, const std::string& delegate);

// The opened driver's table, or null. Never initialises.
const isthmus_driver* driver_table() noexcept;
const std::string& driver_path() noexcept;
// Whether CPU kernels may run on the memory of the opened driver's devices. Never initialises.
inline bool delegates_to_cpu() noexcept {
  const isthmus_driver* table = driver_table();
  return table != nullptr && table->delegate == ISTHMUS_DELEGATE_CPU;
}

// The table of the initialised driver; initialises it on first use. Throws if there is none, if initialise
// failed, or in a process forked after it.
const isthmus_driver& driver();
bool driver_initialized() noexcept;

// Leaves to the first use what would take most of the time that `import torch` waits for the chip: driver()
// calls finish_registration() before it initialises, which calls the function once.
void defer_registration(std::function<void()> function);
void finish_registration();

bool in_bad_fork() noexcept;

// Throws c10::Error "<what>: <driver's message>" unless status is ISTHMUS_OK.
void check(isthmus_status status, const char* what);

// Whether the optional member is inside the driver's table and not null.
#define ISTHMUS_HAS(table, member)                                                     \
  ((table).struct_size >= offsetof(isthmus_driver, member) + sizeof((table).member) && \
   (table).member != nullptr)

// Number of devices; 0 with device_error() set when the driver cannot be used. Never throws.
c10::DeviceIndex device_count() noexcept;
const std::string& device_error() noexcept;

// Throws unless the device exists; the error names a process forked after the first use.
void check_device(c10::DeviceIndex device);

// (free, total) bytes of the device's memory, over all processes.
std::pair<uint64_t, uint64_t> free_and_total(c10::DeviceIndex device);

// PyTorch's current device of this thread. use_device() passes it to the driver, only when a call needs it.
c10::DeviceIndex current_device() noexcept;
void set_current_device(c10::DeviceIndex device);  // throws if out of range
c10::DeviceIndex exchange_device(c10::DeviceIndex device);
void restore_device(c10::DeviceIndex device) noexcept;  // to a device that was current before

// Makes device the driver's current device on this thread. Calls the driver only on a change, counted.
void use_device(c10::DeviceIndex device);
// Keeps backward through the chip in the calling thread, which has the user's thread count and floating-point
// mode; autograd's device threads have their own.
inline void keep_backward_in_thread() noexcept {
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
}

// Calls the function without Python's lock, even if this thread has it: a stream that the function waits for
// may run Python functions. The bindings set how.
void without_gil(const std::function<void()>& function);
void set_without_gil(void (*call)(const std::function<void()>&));

int64_t set_device_calls() noexcept;
void reset_set_device_calls() noexcept;

}  // namespace isthmus
