#include "runtime.h"

#include <pthread.h>

#include <atomic>
#include <mutex>

#include "library.h"

namespace isthmus::drivers {
const char* const kDriverName = "ascend";
}

namespace isthmus::npu {
namespace {

constexpr const char* kLibrary = "libascendcl.so";
constexpr int kRepeatInitialize = 100002;
constexpr int kHighBandwidthMemory = 1;  // aclrtMemAttr

std::mutex starting;

thread_local int32_t current = 0;
thread_local bool bound = false;

Acl open_library() {
  const Library library(kLibrary, ISTHMUS_NO_DEVICE);
  Acl found;
#define ISTHMUS_ACL_FIND(name, result, arguments) \
  found.name = reinterpret_cast<result(*) arguments>(library.require("acl" #name));
  ISTHMUS_ACL_FUNCTIONS(ISTHMUS_ACL_FIND)
#undef ISTHMUS_ACL_FIND
#define ISTHMUS_ACL_TRY(name, result, arguments) \
  found.name = reinterpret_cast<result(*) arguments>(library.find("acl" #name));
  ISTHMUS_ACL_NEWER_FUNCTIONS(ISTHMUS_ACL_TRY)
#undef ISTHMUS_ACL_TRY
  return found;
}

}  // namespace

const Acl& acl() {
  static const Acl functions = open_library();
  return functions;
}

void require_function(bool found, const char* name) {
  if (!found)
    throw Failure{ISTHMUS_UNSUPPORTED, std::string(kLibrary) + " has no " + name + "; use a newer toolkit"};
}

void start() {
  const std::lock_guard<std::mutex> lock(starting);
  if (driver_state.load() != State::kNew) return;
  const int code = acl().Init(nullptr);
  if (code != kRepeatInitialize) check(code, "aclInit");
  pthread_atfork(nullptr, nullptr, [] {
    if (driver_state.load() == State::kReady) driver_state.store(State::kForked);
  });
  driver_state.store(State::kReady, std::memory_order_release);
}

int32_t device_count() {
  uint32_t count = 0;
  ISTHMUS_ACL(rtGetDeviceCount, &count);
  return static_cast<int32_t>(count);
}

Memory memory_of_device() {
  Memory found;
  ISTHMUS_ACL(rtGetMemInfo, kHighBandwidthMemory, &found.free, &found.total);
  return found;
}

void require_device(int32_t device) {
  static const int32_t count = device_count();
  if (device >= 0 && device < count) return;
  throw Failure{ISTHMUS_NO_DEVICE, "device " + std::to_string(device) + " does not exist; " +
                                       std::to_string(count) + " devices available"};
}

int32_t current_device() { return current; }

void reset_device() {
  ISTHMUS_ACL(rtResetDevice, current);
  bound = false;
}

void set_device(int32_t device) {
  ISTHMUS_ACL(rtSetDevice, device);
  current = device;
  bound = true;
}

void bind_device() {
  if (!bound) set_device(current);
}

DeviceScope::DeviceScope(int32_t device) : before_(current), was_bound_(bound) {
  if (device != before_ || !was_bound_) set_device(device);
}

// A thread that had used no device is left without one.
DeviceScope::~DeviceScope() {
  if (current == before_) return;
  if (was_bound_) {
    call_guarded([&] { return set_device(before_), ISTHMUS_OK; });
  } else {
    current = before_;
    bound = false;
  }
}

}  // namespace isthmus::npu
