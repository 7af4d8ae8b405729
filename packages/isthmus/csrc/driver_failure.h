// For drivers in C++: failures inside the driver are exceptions, which call() turns into a status and
// last_error() at the C boundary. The driver defines kDriverName.
#pragma once

#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
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

// The driver's name, for messages.
extern const char* const kDriverName;

// State of the driver in this process.
enum class State { kNew, kReady, kForked, kFinalized };
inline std::atomic<State> driver_state{State::kNew};

// A plain array, so that it outlives every thread-exit destructor that may still call the driver.
inline thread_local char message_of_thread[768] = "no failure on this thread";

[[noreturn]] void fail(isthmus_status status, const char* format, ...) __attribute__((format(printf, 2, 3)));

inline void fail(isthmus_status status, const char* format, ...) {
  char message[sizeof(message_of_thread)];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message, sizeof(message), format, arguments);
  va_end(arguments);
  throw Failure{status, message};
}

// Returns the message of the last failure on this thread; never null.
inline const char* last_error() noexcept { return message_of_thread; }

inline isthmus_status set_last_error(isthmus_status status, const char* message) noexcept {
  std::snprintf(message_of_thread, sizeof(message_of_thread), "%s", message);
  return status;
}

// Sets last_error() to why the driver cannot be called in its current state.
inline isthmus_status refuse_call() noexcept {
  char message[sizeof(message_of_thread)];
  const auto refused = [&](isthmus_status status, const char* cause) {
    std::snprintf(message, sizeof(message), "the %s driver %s", kDriverName, cause);
    return set_last_error(status, message);
  };
  switch (driver_state.load(std::memory_order_acquire)) {
    case State::kForked:
      return refused(ISTHMUS_INTERNAL,
                     "cannot be used in a forked child of a process that initialised it; "
                     "start the child with the 'spawn' method");
    case State::kFinalized:
      return refused(ISTHMUS_INTERNAL, "was finalised; no call may follow finalize()");
    default:
      return refused(ISTHMUS_INVALID_ARGUMENT, "is not initialised; call initialize() first");
  }
}

// Runs the body of a driver function and converts exceptions to a status.
template <typename Body>
isthmus_status call_guarded(Body&& body) noexcept {
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

// Runs the body as call_guarded() does if the driver is usable; otherwise returns why it is not.
template <typename Body>
isthmus_status call(Body&& body) noexcept {
  if (driver_state.load(std::memory_order_acquire) != State::kReady) return refuse_call();
  return call_guarded(body);
}

// Fails with ISTHMUS_INVALID_ARGUMENT if an output or a handle of a driver function is null.
inline void require_not_null(const void* pointer, const char* function, const char* argument) {
  if (pointer == nullptr) {
    fail(ISTHMUS_INVALID_ARGUMENT, "%s: %s is null; pass a valid pointer", function, argument);
  }
}

}  // namespace isthmus::drivers
