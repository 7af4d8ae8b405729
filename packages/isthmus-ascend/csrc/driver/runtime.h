// The vendor's runtime, libascendcl.so, opened when the driver is initialised, and what the driver knows of
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "driver_failure.h"

namespace isthmus::npu {

using namespace isthmus::drivers;

inline void require(bool condition, const char* message) {
  if (!condition) fail(ISTHMUS_INVALID_ARGUMENT, "%s", message);
}

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

// Functions that older toolkits lack; the driver's own then return ISTHMUS_UNSUPPORTED.
#define ISTHMUS_ACL_NEWER_FUNCTIONS(X)                                                                    \
  X(rtGetDeviceUtilizationRate, int, (int32_t device, UtilizationRate* rate))                             \
  X(rtDeviceGetStreamPriorityRange, int, (int32_t* lowest, int32_t* highest))                             \
  X(rtDeviceEnablePeerAccess, int, (int32_t device, uint32_t flags))                                      \
  X(rtReserveMemAddress, int, (void** pointer, size_t bytes, size_t alignment, void* at, uint64_t flags)) \
  X(rtReleaseMemAddress, int, (void* pointer))                                                            \
  X(rtMallocPhysical, int, (void** handle, size_t bytes, const PhysicalMemory* memory, uint64_t flags))   \
  X(rtFreePhysical, int, (void* handle))                                                                  \
  X(rtMapMem, int, (void* pointer, size_t bytes, size_t offset, void* handle, uint64_t flags))            \
  X(rtUnmapMem, int, (void* pointer))                                                                     \
  X(rtIpcMemGetExportKey, int, (void* pointer, size_t bytes, char* key, size_t room, uint64_t flags))     \
  X(rtIpcMemImportByKey, int, (void** pointer, const char* key, uint64_t flags))                          \
  X(rtIpcMemClose, int, (const char* key))                                                                \
  X(rtIpcGetEventHandle, int, (void* event, EventHandle* handle))                                         \
  X(rtIpcOpenEventHandle, int, (EventHandle handle, void** event))                                        \
  X(mdlRICaptureBegin, int, (void* stream, int mode))                                                     \
  X(mdlRICaptureEnd, int, (void* stream, void** model))                                                   \
  X(mdlRICaptureGetInfo, int, (void* stream, int* status, void** model))                                  \
  X(mdlRIGetId, int, (void* model, uint32_t* id))                                                         \
  X(mdlRIExecuteAsync, int, (void* model, void* stream))                                                  \
  X(mdlRIDestroy, int, (void* model))

// aclrtPhysicalMemProp.
struct PhysicalMemory {
  int handle_type = 0, allocation_type = 0;
  int attribute = 4;  // huge pages of high-bandwidth memory
  uint32_t device = 0;
  int location_type = 1;  // a device
  uint64_t reserved = 0;
};

// aclrtUtilizationInfo: percent, below 0 if not measured.
struct UtilizationRate {
  int32_t cube = 0, vector = 0, ai_cpu = 0, memory = 0;
  void* extension = nullptr;
};

// aclrtIpcEventHandle.
struct EventHandle {
  char bytes[64];
};

struct Acl {
#define ISTHMUS_ACL_MEMBER(name, result, arguments) result(*name) arguments = nullptr;
  ISTHMUS_ACL_FUNCTIONS(ISTHMUS_ACL_MEMBER)
  ISTHMUS_ACL_NEWER_FUNCTIONS(ISTHMUS_ACL_MEMBER)
#undef ISTHMUS_ACL_MEMBER
};

// The functions of the library; opens it. Fails with ISTHMUS_NO_DEVICE if it cannot be opened.
const Acl& acl();

// ": " and the vendor's message of the thread's last failure; empty if it has none.
std::string recent_message();

// Throws a failure with the vendor's code and message, and a remedy, unless the code of a call is 0.
void check(int code, const char* function);
#define ISTHMUS_ACL(name, ...) check(acl().name(__VA_ARGS__), "acl" #name)
// The same for a function that may be absent.
#define ISTHMUS_ACL_NEWER(name, ...) \
  (require_function(acl().name != nullptr, "acl" #name), check(acl().name(__VA_ARGS__), "acl" #name))
void require_function(bool found, const char* name);

// Initialises the runtime, once; a process forked afterwards is refused.
void start();

int32_t device_count();
// Bytes of the thread's device.
struct Memory {
  size_t free = 0, total = 0;
};
Memory memory_of_device();
void require_device(int32_t device);
int32_t current_device();

// Makes a device this thread's current one, and the vendor's too.
void set_device(int32_t device);
// The vendor's functions need a device of the calling thread.
void bind_device();
// Gives up this process's work and memory on the thread's device.
void reset_device();

// Makes a device current on the thread while it lives.
class DeviceScope {
 public:
  explicit DeviceScope(int32_t device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  const int32_t before_;
  const bool was_bound_;
};

// Runs the body of a driver function on the thread's device.
template <typename Body>
isthmus_status call_on_device(Body&& body) noexcept {
  return call([&] {
    bind_device();
    return body();
  });
}

}  // namespace isthmus::npu
