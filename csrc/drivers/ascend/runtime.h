// The vendor's runtime, libascendcl.so, opened when the driver is initialised, and what the driver knows of
// it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "error.h"

namespace isthmus::npu {

// Functions of AscendCL that the driver calls; their names lose the prefix "acl".
#define ISTHMUS_ACL_FUNCTIONS(X)                                                                         \
  X(Init, int, (const char* config))                                                                     \
  X(GetRecentErrMsg, const char*, ())                                                                    \
  X(rtGetSocName, const char*, ())                                                                       \
  X(rtGetDeviceCount, int, (uint32_t* count))                                                            \
  X(rtSetDevice, int, (int32_t device))                                                                  \
  X(rtResetDevice, int, (int32_t device))                                                                \
  X(rtSynchronizeDevice, int, ())                                                                        \
  X(rtGetMemInfo, int, (int kind, size_t* free_bytes, size_t* total_bytes))                              \
  X(rtMalloc, int, (void** pointer, size_t bytes, int policy))                                           \
  X(rtFree, int, (void* pointer))                                                                        \
  X(rtMallocHost, int, (void** pointer, size_t bytes))                                                   \
  X(rtFreeHost, int, (void* pointer))                                                                    \
  X(rtMemcpy, int, (void* to, size_t room, const void* from, size_t bytes, int kind))                    \
  X(rtMemcpyAsync, int, (void* to, size_t room, const void* from, size_t bytes, int kind, void* stream)) \
  X(rtMemsetAsync, int, (void* pointer, size_t room, int32_t value, size_t bytes, void* stream))         \
  X(rtCreateStreamWithConfig, int, (void** stream, uint32_t priority, uint32_t flags))                   \
  X(rtDestroyStream, int, (void* stream))                                                                \
  X(rtSynchronizeStream, int, (void* stream))                                                            \
  X(rtStreamQuery, int, (void* stream, int* status))                                                     \
  X(rtStreamWaitEvent, int, (void* stream, void* event))                                                 \
  X(rtCreateEventExWithFlag, int, (void** event, uint32_t flags))                                        \
  X(rtDestroyEvent, int, (void* event))                                                                  \
  X(rtRecordEvent, int, (void* event, void* stream))                                                     \
  X(rtQueryEventStatus, int, (void* event, int* status))                                                 \
  X(rtSynchronizeEvent, int, (void* event))                                                              \
  X(rtEventElapsedTime, int, (float* milliseconds, void* start, void* end))                              \
  X(rtLaunchHostFunc, int, (void* stream, void (*function)(void*), void* data))

struct Acl {
#define ISTHMUS_ACL_MEMBER(name, result, arguments) result(*name) arguments = nullptr;
  ISTHMUS_ACL_FUNCTIONS(ISTHMUS_ACL_MEMBER)
#undef ISTHMUS_ACL_MEMBER
};

// The functions of the library; opens it. Fails with ISTHMUS_NO_DEVICE if it cannot be opened.
const Acl& acl();

// Throws a failure with the vendor's message unless the code of a call is 0.
void check(int code, const char* function);
#define ISTHMUS_ACL(name, ...) check(acl().name(__VA_ARGS__), "acl" #name)

// Initialises the runtime, once; a process forked afterwards is refused.
void start();
void require_started();

int32_t device_count();
void require_device(int32_t device);
int32_t current_device();

// Makes a device this thread's current one, and the vendor's too.
void set_device(int32_t device);
// The vendor's functions need a device of the calling thread.
void bind_device();

// Runs the body of a driver function on the thread's device.
template <typename Body>
isthmus_status call(Body&& body) noexcept {
  return guarded([&] {
    require_started();
    bind_device();
    return body();
  });
}

}  // namespace isthmus::npu
