#include "runtime.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <mutex>

namespace isthmus::drivers {
const char* const kDriverName = "ascend";
}

namespace isthmus::npu {
namespace {

constexpr const char* kLibrary = "libascendcl.so";
constexpr int kRepeatInitialize = 100002;

std::mutex starting;

thread_local int32_t current = 0;
thread_local bool bound = false;

Acl open_library() {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw Failure{ISTHMUS_NO_DEVICE, std::string(dlerror()) +
                                         "; install the vendor's toolkit and source its set_env.sh, or use "
                                         "`isthmus ascend run`"};
  }
  Acl found;
  const auto find = [&](const char* name) {
    void* const symbol = dlsym(library, name);
    if (symbol == nullptr)
      throw Failure{ISTHMUS_NO_DEVICE, std::string(kLibrary) + " has no " + name + "; use a newer toolkit"};
    return symbol;
  };
#define ISTHMUS_ACL_FIND(name, result, arguments) \
  found.name = reinterpret_cast<result(*) arguments>(find("acl" #name));
  ISTHMUS_ACL_FUNCTIONS(ISTHMUS_ACL_FIND)
#undef ISTHMUS_ACL_FIND
#define ISTHMUS_ACL_TRY(name, result, arguments) \
  found.name = reinterpret_cast<result(*) arguments>(dlsym(library, "acl" #name));
  ISTHMUS_ACL_NEWER_FUNCTIONS(ISTHMUS_ACL_TRY)
#undef ISTHMUS_ACL_TRY
  return found;
}

// Codes of aclError; ranges as the vendor documents them.
isthmus_status status_of(int code) {
  switch (code) {
    case 107001:
    case 107021:
      return ISTHMUS_NO_DEVICE;
    case 207000:
      return ISTHMUS_UNSUPPORTED;
    case 207001:
      return ISTHMUS_OUT_OF_MEMORY;
    case 107019:
    case 507046:
      return ISTHMUS_TIMEOUT;
    default:
      break;
  }
  if (code >= 107000 && code < 108000) return ISTHMUS_INVALID_ARGUMENT;
  if (code >= 507000 && code < 508000) return ISTHMUS_DEVICE_ERROR;
  return ISTHMUS_INTERNAL;
}

}  // namespace

const Acl& acl() {
  static const Acl functions = open_library();
  return functions;
}

void check(int code, const char* function) {
  if (code == 0) return;
  const char* said = acl().GetRecentErrMsg();
  const std::string message = said == nullptr ? "" : std::string(": ") + said;
  throw Failure{status_of(code), std::string(function) + " failed with " + std::to_string(code) + message};
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

}  // namespace isthmus::npu
