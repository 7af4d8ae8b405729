// Events.
#include "activity.h"
#include "device.h"
#include "error.h"
#include "event.h"
#include "parts.h"

namespace isthmus::host {
namespace {

constexpr double kNanosecondsPerMillisecond = 1e6;

Event& event_of(isthmus_event handle, const char* function) {
  require_not_null(handle, function, "event");
  return *reinterpret_cast<Event*>(handle);
}

isthmus_status event_create(uint32_t flags, isthmus_event* event) {
  return call([&] {
    require_not_null(event, "event_create", "event");
    if ((flags & ~(ISTHMUS_EVENT_TIMING | ISTHMUS_EVENT_SHARED)) != 0) {
      fail(ISTHMUS_INVALID_ARGUMENT, "event_create: flags 0x%x have unknown bits; use ISTHMUS_EVENT_*",
           flags);
    }
    if (flags == (ISTHMUS_EVENT_TIMING | ISTHMUS_EVENT_SHARED)) {
      fail(ISTHMUS_UNSUPPORTED,
           "event_create: a shared event has no timing; pass ISTHMUS_EVENT_TIMING or ISTHMUS_EVENT_SHARED, "
           "not both");
    }
    *event = reinterpret_cast<isthmus_event>(new Event(flags));
    return ISTHMUS_OK;
  });
}

isthmus_status event_destroy(isthmus_event handle) {
  return call([&] {
    delete &event_of(handle, "event_destroy");
    return ISTHMUS_OK;
  });
}

isthmus_status event_record(isthmus_event handle, isthmus_stream stream) {
  return call([&] {
    event_of(handle, "event_record").record(stream_of(stream));
    return ISTHMUS_OK;
  });
}

isthmus_status event_query(isthmus_event handle) {
  return call(
      [&] { return event_of(handle, "event_query").pending() == nullptr ? ISTHMUS_OK : ISTHMUS_NOT_READY; });
}

isthmus_status event_synchronize(isthmus_event handle) {
  return call([&] {
    if (const auto record = event_of(handle, "event_synchronize").pending()) record->wait();
    return ISTHMUS_OK;
  });
}

isthmus_status event_elapsed(isthmus_event start, isthmus_event end, double* milliseconds) {
  return call([&] {
    require_not_null(milliseconds, "event_elapsed", "milliseconds");
    Event& first = event_of(start, "event_elapsed");
    Event& last = event_of(end, "event_elapsed");
    first.require_timing("start");
    last.require_timing("end");
    const int64_t began = first.time_ns("start");
    const int64_t ended = last.time_ns("end");
    *milliseconds = static_cast<double>(ended - began) / kNanosecondsPerMillisecond;
    return ISTHMUS_OK;
  });
}

isthmus_status stream_wait_event(isthmus_stream handle, isthmus_event event) {
  return call([&] {
    Stream& stream = stream_of(handle);
    Event& awaited = event_of(event, "stream_wait_event");
    if (awaited.wait_in_capture(stream)) return ISTHMUS_OK;
    const auto record = awaited.pending();
    // A stream never needs to wait for its own past.
    if (record == nullptr || record->stream() == &stream) return ISTHMUS_OK;
    stream.submit(activity::record_around(ISTHMUS_ACTIVITY_SYNCHRONIZE, "Stream Wait Event", stream, 0,
                                          [record] { record->wait(); }));
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
  table.stream_wait_event = stream_wait_event;
}

}  // namespace isthmus::host
