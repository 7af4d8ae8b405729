// The last error of each thread.
#include "errors.h"

#include <cstdarg>
#include <cstdint>
#include <cstdio>

#include "chip.h"
#include "failures.h"

namespace isthmus::ascend {
namespace {

constexpr size_t kMessageBytes = 1024;
// Plain arrays, so that they outlive every thread-exit destructor that may still call the runtime.
thread_local char message_of_thread[kMessageBytes];
thread_local char message_returned[kMessageBytes];
thread_local int code_of_thread = kSuccess;
thread_local int prefix_of_thread = 0;  // length of what precedes the function in the message

}  // namespace

void fail(int code, const char* format, ...) {
  char message[kMessageBytes];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message, sizeof(message), format, arguments);
  va_end(arguments);
  throw Failure{code, message};
}

int code_of(isthmus_status status) noexcept {
  switch (status) {
    case ISTHMUS_OK:
      return kSuccess;
    case ISTHMUS_INVALID_ARGUMENT:
      return kInvalidParameter;
    case ISTHMUS_OUT_OF_MEMORY:
      return kOutOfMemory;
    case ISTHMUS_NO_DEVICE:
      return kInvalidDevice;
    case ISTHMUS_UNSUPPORTED:
      return kUnsupported;
    case ISTHMUS_TIMEOUT:
      return kTaskTimeout;
    case ISTHMUS_ABORTED:
      return kTaskAborted;
    case ISTHMUS_DEVICE_ERROR:
      return kAicoreException;
    default:
      return kRuntimeInternal;
  }
}

void check(isthmus_status status) {
  if (status != ISTHMUS_OK) throw Failure{code_of(status), driver().last_error()};
}

int report(int code, const char* function, const char* message) noexcept {
  prefix_of_thread =
      std::snprintf(message_of_thread, sizeof(message_of_thread), "isthmus ascend: error %d in ", code);
  std::snprintf(message_of_thread + prefix_of_thread, sizeof(message_of_thread) - prefix_of_thread, "%s: %s",
                function, message);
  code_of_thread = code;
  note_end_of_task_queue(code, function, message);
  return code;
}

std::string last_message() { return message_of_thread + prefix_of_thread; }

}  // namespace isthmus::ascend

using namespace isthmus::ascend;

// The message of the thread's last failure, once; null if there is none. Valid until the next call on this
// thread.
ISTHMUS_ASCEND_EXPORT const char* aclGetRecentErrMsg() {
  if (message_of_thread[0] == '\0') return nullptr;
  std::snprintf(message_returned, sizeof(message_returned), "%s", message_of_thread);
  message_of_thread[0] = '\0';
  return message_returned;
}

// level: 0, the calling thread.
ISTHMUS_ASCEND_EXPORT int aclrtPeekAtLastError(int level) {
  return level == 0 ? code_of_thread : static_cast<int>(kInvalidParameter);
}

ISTHMUS_ASCEND_EXPORT int aclrtGetLastError(int level) {
  const int code = aclrtPeekAtLastError(level);
  if (level == 0) code_of_thread = kSuccess;
  return code;
}

ISTHMUS_ASCEND_EXPORT int isthmus_ascend_report(int code, const char* function, const char* message) {
  return report(code, function, message);
}
