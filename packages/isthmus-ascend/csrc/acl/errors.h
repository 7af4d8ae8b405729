// Failures inside the runtime are exceptions; call() turns them into an aclError and the message that
// aclGetRecentErrMsg() returns.
#pragma once

#include <exception>
#include <memory>
#include <new>
#include <string>

#include "driver.h"
#include "enqueue.h"

#define ISTHMUS_ASCEND_EXPORT extern "C" __attribute__((visibility("default")))

namespace isthmus::ascend {

// Values of aclError.
enum Error : int {
  kSuccess = 0,
  kUninitialized = 100001,
  kRepeatInitialize = 100002,
  kInvalidParameter = 107000,
  kInvalidDevice = 107001,
  kContextNull = 107002,
  kStreamNotSubscribed = 107011,
  kThreadNotSubscribed = 107012,
  kStreamNoCallback = 107015,
  kInvalidHandle = 107017,
  kTaskTimeout = 107019,
  kReportTimeout = 107020,
  kTaskAborted = 107022,
  kUnsupported = 207000,
  kOutOfMemory = 207001,
  kInternal = 500000,
  kRuntimeInternal = 507000,
  kHeartbeatLost = 507010,
  kAicoreTimeout = 507014,
  kAicoreException = 507015,
  kStreamTimeout = 507046,
  kDeviceMemory = 507053,
  kHbmEcc = 507054,
};

struct Failure {
  int code;             // an aclError
  std::string message;  // cause, value, remedy
};

[[noreturn]] void fail(int code, const char* format, ...) __attribute__((format(printf, 2, 3)));

// The aclError of a driver's status.
int code_of(isthmus_status status) noexcept;

// Throws the driver's last error unless the status is ISTHMUS_OK.
void check(isthmus_status status);

// Keeps the message for aclGetRecentErrMsg() and returns the code.
int report(int code, const char* function, const char* message) noexcept;

// The thread's last message without its code: "function: message".
std::string last_message();

// Throws kInvalidParameter if the pointer is null.
inline void require_not_null(const void* pointer, const char* argument) {
  if (pointer == nullptr) fail(kInvalidParameter, "%s is null; pass a valid pointer", argument);
}

// Returns what was found for a handle; throws kInvalidHandle if that is null. kind: of the object, for the
// message.
template <typename Object>
std::shared_ptr<Object> require_found(const char* kind, const void* handle, std::shared_ptr<Object> found) {
  if (found == nullptr)
    fail(kInvalidHandle, "%s %p does not exist; it may have been destroyed", kind, handle);
  return found;
}

// Runs the body of an exported function.
template <typename Body>
int call(const char* function, Body&& body) noexcept {
  if (const int fault = isthmus_ascend_fault(function)) return fault;
  try {
    body();
    return kSuccess;
  } catch (const Failure& failure) {
    return report(failure.code, function, failure.message.c_str());
  } catch (const std::bad_alloc&) {
    return report(kOutOfMemory, function, "the process is out of host memory; free some");
  } catch (const std::exception& error) {
    return report(kInternal, function, error.what());
  }
}

}  // namespace isthmus::ascend
