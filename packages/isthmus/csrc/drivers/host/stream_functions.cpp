// Streams. The host chip runs streams as the operating system schedules their threads, so priorities have no
// effect.
#include "activity.h"
#include "device.h"
#include "error.h"
#include "event.h"
#include "parts.h"

namespace isthmus::host {
namespace {

constexpr int32_t kLowestPriority = 0, kHighestPriority = -1;

isthmus_status stream_create(int32_t priority, isthmus_stream* stream) {
  (void)priority;
  return call([&] {
    require_not_null(stream, "stream_create", "stream");
    *stream = handle_of(current_device().create_stream());
    return ISTHMUS_OK;
  });
}

isthmus_status stream_destroy(isthmus_stream handle) {
  return call([&] {
    require_not_null(handle, "stream_destroy", "stream");
    Stream& stream = stream_of(handle);
    Device& device = device_at(stream.device());
    if (&stream == &device.default_stream()) {
      fail(ISTHMUS_INVALID_ARGUMENT,
           "stream_destroy: %p is the default stream of chip %d; destroy other streams only",
           static_cast<void*>(handle), device.index());
    }
    device.destroy_stream(stream);
    return ISTHMUS_OK;
  });
}

isthmus_status stream_synchronize(isthmus_stream handle) {
  return call([&] {
    stream_of(handle).synchronize();
    return ISTHMUS_OK;
  });
}

isthmus_status stream_query(isthmus_stream handle) {
  return call([&] {
    Stream& stream = stream_of(handle);
    stream.require_not_captured("stream_query");
    return stream.idle() ? ISTHMUS_OK : ISTHMUS_NOT_READY;
  });
}

isthmus_status stream_default(isthmus_stream* stream) {
  return call([&] {
    require_not_null(stream, "stream_default", "stream");
    *stream = handle_of(current_device().default_stream());
    return ISTHMUS_OK;
  });
}

isthmus_status stream_priority_range(int32_t* lowest, int32_t* highest) {
  return call([&] {
    require_not_null(lowest, "stream_priority_range", "lowest");
    require_not_null(highest, "stream_priority_range", "highest");
    *lowest = kLowestPriority;
    *highest = kHighestPriority;
    return ISTHMUS_OK;
  });
}

// A native stream of the host chip is a stream of this driver, made by another user of it in the process.
isthmus_status stream_wrap(void* native, isthmus_stream* stream) {
  return call([&] {
    require_not_null(native, "stream_wrap", "native");
    require_not_null(stream, "stream_wrap", "stream");
    for (const auto& device : runtime().devices) {
      if (!device->owns(static_cast<const Stream*>(native))) continue;
      *stream = static_cast<isthmus_stream>(native);
      return ISTHMUS_OK;
    }
    fail(ISTHMUS_INVALID_ARGUMENT,
         "stream_wrap: %p is not a stream of the host chip; pass one returned by stream_create()", native);
  });
}

isthmus_status stream_host_function(isthmus_stream handle, isthmus_host_function function, void* user_data) {
  return call([&] {
    if (function == nullptr) fail(ISTHMUS_INVALID_ARGUMENT, "stream_host_function: function is null");
    Stream& stream = stream_of(handle);
    stream.submit(activity::record_around(ISTHMUS_ACTIVITY_KERNEL, "host function", stream, 0,
                                          [=] { function(user_data); }));
    return ISTHMUS_OK;
  });
}

}  // namespace

void add_stream_functions(isthmus_driver& table) {
  table.stream_create = stream_create;
  table.stream_destroy = stream_destroy;
  table.stream_synchronize = stream_synchronize;
  table.stream_query = stream_query;
  table.stream_default = stream_default;
  table.stream_priority_range = stream_priority_range;
  table.stream_wrap = stream_wrap;
  table.stream_host_function = stream_host_function;
}

}  // namespace isthmus::host
