#include "error.h"

#include <cstdarg>
#include <cstdio>

namespace isthmus::host {

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

std::string format_bytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

const char* last_error() noexcept { return message_of_thread; }

isthmus_status set_last_error(isthmus_status status, const char* message) noexcept {
  std::snprintf(message_of_thread, sizeof(message_of_thread), "%s", message);
  return status;
}

isthmus_status refuse_call() noexcept {
  switch (driver_state.load(std::memory_order_acquire)) {
    case State::kForked:
      return set_last_error(
          ISTHMUS_INTERNAL,
          "the host driver cannot be used in a forked child of a process that initialised it; "
          "start the child with the 'spawn' method");
    case State::kFinalized:
      return set_last_error(ISTHMUS_INTERNAL, "the host driver was finalised; no call may follow finalize()");
    default:
      return set_last_error(ISTHMUS_INVALID_ARGUMENT,
                            "the host driver is not initialised; call initialize() first");
  }
}

}  // namespace isthmus::host
