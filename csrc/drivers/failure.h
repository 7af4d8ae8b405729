// Failures inside the driver are exceptions; call() turns them into a status and last_error() at the C
// boundary.
#pragma once

#include <atomic>
#include <cstdint>
#include <new>
#include <string>

#include "driver.h"

namespace isthmus::drivers {

struct Failure {
  isthmus_status status;
  std::string message;  // cause, value, remedy
  // Fields of isthmus_comm_failure.
  int32_t rank = -1;
  int64_t process = 0;
  uint64_t operation = 0;
};

[[noreturn]] void fail(isthmus_status status, const char* format, ...) __attribute__((format(printf, 2, 3)));

// The message of the last failure on this thread; never null.
const char* last_error() noexcept;
isthmus_status set_last_error(isthmus_status status, const char* message) noexcept;

// Name of the driver that is linked with this, for messages.
extern const char* const kDriverName;

// State of the driver in this process.
enum class State { kNew, kReady, kForked, kFinalized };
extern std::atomic<State> driver_state;

// Sets last_error() to why the driver cannot be called in its current state.
isthmus_status refuse_call() noexcept;

// Runs the body of a driver function and converts exceptions to a status.
template <typename Body>
isthmus_status guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (const Failure& failure) {
    return set_last_error(failure.status, failure.message.c_str());
  } catch (const std::bad_alloc&) {
    return set_last_error(ISTHMUS_OUT_OF_MEMORY,
                          "the process is out of host memory; free some or use a smaller batch");
  } catch (const std::exception& error) {
    return set_last_error(ISTHMUS_INTERNAL, error.what());
  }
}

// Like guarded(), if the driver is usable.
template <typename Body>
isthmus_status call(Body&& body) noexcept {
  if (driver_state.load(std::memory_order_acquire) != State::kReady) return refuse_call();
  return guarded(body);
}

// Fails with ISTHMUS_INVALID_ARGUMENT if an output or a handle of a driver function is null.
inline void require_not_null(const void* pointer, const char* function, const char* argument) {
  if (pointer == nullptr) {
    fail(ISTHMUS_INVALID_ARGUMENT, "%s: %s is null; pass a valid pointer", function, argument);
  }
}

}  // namespace isthmus::drivers
