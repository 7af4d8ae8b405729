// Failures are exceptions inside the driver; guarded() turns them into a status and last_error().
#pragma once

#include <exception>
#include <new>
#include <string>
#include <utility>

#include "driver.h"

namespace sample {

struct Failure {
  isthmus_status status;
  std::string message;  // what, the value, the remedy
};

inline std::string& last_message() {
  thread_local std::string message;
  return message;
}

inline void require(bool condition, const char* message) {
  if (!condition) throw Failure{ISTHMUS_INVALID_ARGUMENT, message};
}

template <typename Body>
isthmus_status guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (Failure& failure) {
    last_message() = std::move(failure.message);
    return failure.status;
  } catch (const std::bad_alloc&) {
    last_message() = "out of host memory";
    return ISTHMUS_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    last_message() = error.what();
    return ISTHMUS_INTERNAL;
  }
}

}  // namespace sample
