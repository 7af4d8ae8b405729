#include "drivers/failure.h"

#include <cstdarg>
#include <cstdio>

namespace isthmus::drivers {

std::atomic<State> driver_state{State::kNew};

namespace {
// A plain array, so that it outlives every thread-exit destructor that may still call the driver.
thread_local char message_of_thread[768] = "no failure on this thread";
}  // namespace

void fail(isthmus_status status, const char* format, ...) {
  char message[sizeof(message_of_thread)];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message, sizeof(message), format, arguments);
  va_end(arguments);
  throw Failure{status, message};
}

const char* last_error() noexcept { return message_of_thread; }

isthmus_status set_last_error(isthmus_status status, const char* message) noexcept {
  std::snprintf(message_of_thread, sizeof(message_of_thread), "%s", message);
  return status;
}

isthmus_status refuse_call() noexcept {
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

}  // namespace isthmus::drivers
