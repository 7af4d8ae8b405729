// Life of the runtime, and contexts.
#include "context.h"

#include <atomic>
#include <map>

namespace isthmus::ascend {
namespace {

// Never destroyed: applications call the runtime in destructors of their own globals.
struct Contexts {
  Handles<Context> handles{HandleKind::kContext};
  std::mutex mutex;                  // guards what follows
  std::map<int32_t, void*> primary;  // context of each device that was set
};

Contexts& contexts() {
  static Contexts* const contexts = new Contexts;
  return *contexts;
}

thread_local void* current_handle = nullptr;
std::atomic<bool> initialized{false};

void* primary_context(int32_t device) {
  const std::lock_guard<std::mutex> lock(contexts().mutex);
  void*& handle = contexts().primary[device];
  if (handle == nullptr) handle = contexts().handles.add(std::make_shared<Context>(Context{device}));
  return handle;
}

void make_current(void* handle) {
  const auto context = require_found("context", handle, contexts().handles.get(handle));
  check(chip().device_set(context->device));
  current_handle = handle;
}

}  // namespace

std::shared_ptr<Context> current_context() {
  auto context = contexts().handles.get(current_handle);
  if (context == nullptr)
    fail(kContextNull, "this thread has no context; call aclrtSetDevice() or aclrtSetCurrentContext() first");
  return context;
}

const isthmus_driver& current_chip() {
  current_context();  // the driver's device of this thread changes with it
  return chip();
}

bool remove_primary_context(int32_t device) {
  const std::lock_guard<std::mutex> lock(contexts().mutex);
  const auto node = contexts().primary.extract(device);
  if (!node.empty()) contexts().handles.remove(node.mapped());
  return !node.empty();
}

DeviceScope::DeviceScope(int32_t device) {
  check(chip().device_get(&before_));
  check(chip().device_set(device));
}

DeviceScope::~DeviceScope() { chip().device_set(before_); }

}  // namespace isthmus::ascend

using namespace isthmus::ascend;

// The configuration file holds settings of the vendor's hardware, which have no counterpart here.
ISTHMUS_ASCEND_EXPORT int aclInit(const char*) {
  return call("aclInit", [] {
    chip();
    if (initialized.exchange(true)) fail(kRepeatInitialize, "the runtime is initialised already");
  });
}

// The host chip stays usable: applications free memory after this call.
ISTHMUS_ASCEND_EXPORT int aclFinalize() {
  return call("aclFinalize", [] {
    if (!initialized.exchange(false))
      fail(kUninitialized, "the runtime is not initialised; call aclInit() first");
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtGetDeviceCount(uint32_t* count) {
  return call("aclrtGetDeviceCount", [&] {
    require_not_null(count, "count");
    *count = static_cast<uint32_t>(device_count());
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtSetDevice(int32_t device) {
  return call("aclrtSetDevice", [&] {
    require_device(device);
    make_current(primary_context(device));
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtGetDevice(int32_t* device) {
  return call("aclrtGetDevice", [&] {
    require_not_null(device, "device");
    *device = current_context()->device;
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtGetPrimaryCtxState(int32_t device, uint32_t* flags, int32_t* active) {
  return call("aclrtGetPrimaryCtxState", [&] {
    require_device(device);
    require_not_null(active, "active");
    const std::lock_guard<std::mutex> lock(contexts().mutex);
    if (flags != nullptr) *flags = 0;
    *active = contexts().primary.count(device) != 0 ? 1 : 0;
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtCreateContext(void** context, int32_t device) {
  return call("aclrtCreateContext", [&] {
    require_not_null(context, "context");
    require_device(device);
    void* const handle = contexts().handles.add(std::make_shared<Context>(Context{device}));
    make_current(handle);
    *context = handle;
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtDestroyContext(void* context) {
  return call("aclrtDestroyContext",
              [&] { require_found("context", context, contexts().handles.remove(context)); });
}

ISTHMUS_ASCEND_EXPORT int aclrtSetCurrentContext(void* context) {
  return call("aclrtSetCurrentContext", [&] {
    require_not_null(context, "context");
    make_current(context);
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtGetCurrentContext(void** context) {
  return call("aclrtGetCurrentContext", [&] {
    require_not_null(context, "context");
    current_context();
    *context = current_handle;
  });
}
