// Numbers of cores that operators of a device or of a stream may use: kept, and returned. The host chip
// computes with all.
#include <map>
#include <optional>

#include "context.h"
#include "device_info.h"
#include "stream.h"

namespace isthmus::ascend {
namespace {

class Limits {
 public:
  // number: of a device or a stream.
  void set(int32_t number, int kind, uint32_t count) {
    const auto most = cores(kind);
    if (count == 0 || count > most)
      fail(kInvalidParameter, "a limit of %u cores of kind %d; pass 1 to %lld", count, kind,
           static_cast<long long>(most));
    const std::lock_guard<std::mutex> lock(mutex_);
    counts_[{number, kind}] = count;
  }

  void reset(int32_t number) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const int kind : {0, 1}) counts_.erase({number, kind});
  }

  std::optional<uint32_t> get(int32_t number, int kind) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = counts_.find({number, kind});
    if (found == counts_.end()) return std::nullopt;
    return found->second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<int32_t, int>, uint32_t> counts_;
};

Limits& of_devices() {
  static Limits* const limits = new Limits;
  return *limits;
}

Limits& of_streams() {
  static Limits* const limits = new Limits;
  return *limits;
}

thread_local std::optional<int32_t> stream_of_thread;

uint32_t limit_of_device(int32_t device, int kind) {
  const auto most = static_cast<uint32_t>(cores(kind));
  return of_devices().get(device, kind).value_or(most);
}

}  // namespace
}  // namespace isthmus::ascend

using namespace isthmus::ascend;

ISTHMUS_ASCEND_EXPORT int aclrtGetDeviceResLimit(int32_t device, int kind, uint32_t* count) {
  return call("aclrtGetDeviceResLimit", [&] {
    require_not_null(count, "count");
    require_device(device);
    *count = limit_of_device(device, kind);
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtSetDeviceResLimit(int32_t device, int kind, uint32_t count) {
  return call("aclrtSetDeviceResLimit", [&] {
    require_device(device);
    of_devices().set(device, kind, count);
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtResetDeviceResLimit(int32_t device) {
  return call("aclrtResetDeviceResLimit", [&] {
    require_device(device);
    of_devices().reset(device);
  });
}

// The device's limit where the stream has none.
ISTHMUS_ASCEND_EXPORT int aclrtGetStreamResLimit(void* stream, int kind, uint32_t* count) {
  return call("aclrtGetStreamResLimit", [&] {
    require_not_null(count, "count");
    const auto found = stream_of(stream);
    const uint32_t of_device = limit_of_device(found->device, kind);
    *count = of_streams().get(found->id, kind).value_or(of_device);
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtSetStreamResLimit(void* stream, int kind, uint32_t count) {
  return call("aclrtSetStreamResLimit", [&] { of_streams().set(stream_of(stream)->id, kind, count); });
}

ISTHMUS_ASCEND_EXPORT int aclrtResetStreamResLimit(void* stream) {
  return call("aclrtResetStreamResLimit", [&] { of_streams().reset(stream_of(stream)->id); });
}

// The calling thread's limit is the stream's from here on.
ISTHMUS_ASCEND_EXPORT int aclrtUseStreamResInCurrentThread(void* stream) {
  return call("aclrtUseStreamResInCurrentThread", [&] { stream_of_thread = stream_of(stream)->id; });
}

ISTHMUS_ASCEND_EXPORT int aclrtUnuseStreamResInCurrentThread(void* stream) {
  return call("aclrtUnuseStreamResInCurrentThread", [&] {
    stream_of(stream);
    stream_of_thread.reset();
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtGetResInCurrentThread(int kind, uint32_t* count) {
  return call("aclrtGetResInCurrentThread", [&] {
    require_not_null(count, "count");
    const uint32_t of_device = limit_of_device(current_context()->device, kind);
    *count = stream_of_thread ? of_streams().get(*stream_of_thread, kind).value_or(of_device) : of_device;
  });
}
