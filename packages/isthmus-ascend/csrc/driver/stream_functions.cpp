// Streams; the vendor's handles are used unchanged, null for the default stream too.
#include <algorithm>

#include "event.h"
#include "parts.h"
#include "runtime.h"

namespace isthmus::npu {
namespace {

constexpr uint32_t kFastLaunch = 1, kFastSynchronize = 2;
constexpr int kIdle = 0;  // aclrtStreamStatus

// The vendor's numbers. Its default, 0, is the highest priority; older toolkits have no other one.
struct Priorities {
  int32_t lowest = 0, highest = 0;
};

Priorities priorities() {
  Priorities found;
  if (acl().rtDeviceGetStreamPriorityRange != nullptr)
    ISTHMUS_ACL(rtDeviceGetStreamPriorityRange, &found.lowest, &found.highest);
  return found;
}

isthmus_status stream_create(int32_t priority, isthmus_stream* stream) {
  return call_on_device([&] {
    const Priorities range = priorities();
    const auto given = static_cast<uint32_t>(std::clamp(priority, range.highest, range.lowest));
    void* made = nullptr;
    ISTHMUS_ACL(rtCreateStreamWithConfig, &made, given, kFastLaunch | kFastSynchronize);
    *stream = static_cast<isthmus_stream>(made);
    return ISTHMUS_OK;
  });
}

isthmus_status stream_priority_range(int32_t* lowest, int32_t* highest) {
  return call_on_device([&] {
    const Priorities range = priorities();
    *lowest = range.lowest;
    *highest = range.highest;
    return ISTHMUS_OK;
  });
}

isthmus_status stream_destroy(isthmus_stream stream) {
  return call_on_device([&] {
    require(stream != nullptr, "stream_destroy: the default stream cannot be destroyed");
    ISTHMUS_ACL(rtDestroyStream, stream);
    return ISTHMUS_OK;
  });
}

isthmus_status stream_synchronize(isthmus_stream stream) {
  return call_on_device([&] { return ISTHMUS_ACL(rtSynchronizeStream, stream), ISTHMUS_OK; });
}

isthmus_status stream_query(isthmus_stream stream) {
  return call_on_device([&] {
    int found = kIdle;
    ISTHMUS_ACL(rtStreamQuery, stream, &found);
    return found == kIdle ? ISTHMUS_OK : ISTHMUS_NOT_READY;
  });
}

isthmus_status stream_wait_event(isthmus_stream stream, isthmus_event handle) {
  return call_on_device([&] {
    const Event& event = event_of(handle);
    if (event.recorded) ISTHMUS_ACL(rtStreamWaitEvent, stream, event.native);
    return ISTHMUS_OK;
  });
}

isthmus_status stream_host_function(isthmus_stream stream, isthmus_host_function function, void* user_data) {
  return call_on_device([&] {
    require(function != nullptr, "stream_host_function: the function is null");
    ISTHMUS_ACL(rtLaunchHostFunc, stream, function, user_data);
    return ISTHMUS_OK;
  });
}

}  // namespace

void add_stream_functions(isthmus_driver& table) {
  table.stream_create = stream_create;
  table.stream_priority_range = stream_priority_range;
  table.stream_destroy = stream_destroy;
  table.stream_synchronize = stream_synchronize;
  table.stream_query = stream_query;
  table.stream_wait_event = stream_wait_event;
  table.stream_host_function = stream_host_function;
}

}  // namespace isthmus::npu
