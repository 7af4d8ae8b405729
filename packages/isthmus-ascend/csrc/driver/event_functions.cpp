// Events.
#include <cstring>
#include <memory>

#include "event.h"
#include "parts.h"
#include "runtime.h"

namespace isthmus::npu {
namespace {

constexpr uint32_t kSynchronizing = 1, kTimed = 8, kShared = 0x40;  // flags of aclrtCreateEventExWithFlag
constexpr int kRecorded = 1;                                        // aclrtEventRecordedStatus

bool is_complete(const Event& event) {
  if (!event.recorded) return true;
  int found = 0;
  ISTHMUS_ACL(rtQueryEventStatus, event.native, &found);
  return found == kRecorded;
}

isthmus_status event_create(uint32_t flags, isthmus_event* event) {
  return call_on_device([&] {
    require((flags & ~(ISTHMUS_EVENT_TIMING | ISTHMUS_EVENT_SHARED)) == 0,
            "event_create: a flag is not one of ISTHMUS_EVENT_*");
    auto made = std::make_unique<Event>();
    made->timed = (flags & ISTHMUS_EVENT_TIMING) != 0;
    made->shared = (flags & ISTHMUS_EVENT_SHARED) != 0;
    require(!(made->timed && made->shared), "event_create: an event is timed or shared, not both");
    const uint32_t purpose = made->timed ? kTimed : made->shared ? kShared : 0;
    ISTHMUS_ACL(rtCreateEventExWithFlag, &made->native, kSynchronizing | purpose);
    *event = reinterpret_cast<isthmus_event>(made.release());
    return ISTHMUS_OK;
  });
}

isthmus_status event_destroy(isthmus_event handle) {
  return call_on_device([&] {
    const std::unique_ptr<Event> event(&event_of(handle));
    ISTHMUS_ACL(rtDestroyEvent, event->native);
    return ISTHMUS_OK;
  });
}

isthmus_status event_record(isthmus_event handle, isthmus_stream stream) {
  return call_on_device([&] {
    Event& event = event_of(handle);
    ISTHMUS_ACL(rtRecordEvent, event.native, stream);
    event.recorded = true;
    return ISTHMUS_OK;
  });
}

isthmus_status event_query(isthmus_event handle) {
  return call_on_device([&] { return is_complete(event_of(handle)) ? ISTHMUS_OK : ISTHMUS_NOT_READY; });
}

isthmus_status event_synchronize(isthmus_event handle) {
  return call_on_device([&] {
    const Event& event = event_of(handle);
    if (event.recorded) ISTHMUS_ACL(rtSynchronizeEvent, event.native);
    return ISTHMUS_OK;
  });
}

isthmus_status event_elapsed(isthmus_event start, isthmus_event end, double* milliseconds) {
  return call_on_device([&] {
    const Event &first = event_of(start), &last = event_of(end);
    require(first.timed && last.timed, "event_elapsed: create both events with ISTHMUS_EVENT_TIMING");
    require(first.recorded && last.recorded, "event_elapsed: record both events first");
    if (!is_complete(first) || !is_complete(last))
      throw Failure{ISTHMUS_NOT_READY, "event_elapsed: an event is not complete; synchronize it first"};
    float found = 0;
    ISTHMUS_ACL(rtEventElapsedTime, &found, first.native, last.native);
    *milliseconds = found;
    return ISTHMUS_OK;
  });
}

isthmus_status event_export(isthmus_event handle, isthmus_ipc_handle* exported) {
  return call_on_device([&] {
    const Event& event = event_of(handle);
    require(event.shared, "event_export: create the event with ISTHMUS_EVENT_SHARED");
    EventHandle found{};
    ISTHMUS_ACL_NEWER(rtIpcGetEventHandle, event.native, &found);
    isthmus_ipc_handle whole{};
    std::memcpy(whole.bytes, found.bytes, sizeof(found.bytes));
    *exported = whole;
    return ISTHMUS_OK;
  });
}

isthmus_status event_import(const isthmus_ipc_handle* exported, isthmus_event* event) {
  return call_on_device([&] {
    EventHandle handle{};
    std::memcpy(handle.bytes, exported->bytes, sizeof(handle.bytes));
    auto made = std::make_unique<Event>();
    ISTHMUS_ACL_NEWER(rtIpcOpenEventHandle, handle, &made->native);
    made->recorded = true;  // the vendor decides whether another process has recorded it
    *event = reinterpret_cast<isthmus_event>(made.release());
    return ISTHMUS_OK;
  });
}

}  // namespace

void add_event_functions(isthmus_driver& table) {
  table.event_create = event_create;
  table.event_destroy = event_destroy;
  table.event_record = event_record;
  table.event_query = event_query;
  table.event_synchronize = event_synchronize;
  table.event_elapsed = event_elapsed;
  table.event_export = event_export;
  table.event_import = event_import;
}

}  // namespace isthmus::npu
