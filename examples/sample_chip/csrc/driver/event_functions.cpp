// Events.
#include "runtime.h"

namespace sample {
namespace {

constexpr double kNanosecondsPerMillisecond = 1e6;

isthmus_status event_create(uint32_t flags, isthmus_event* event) {
  return guarded([&] {
    require((flags & ~ISTHMUS_EVENT_TIMING) == 0, "event_create: only ISTHMUS_EVENT_TIMING is supported");
    *event = reinterpret_cast<isthmus_event>(new Event(flags));
    return ISTHMUS_OK;
  });
}

isthmus_status event_destroy(isthmus_event event) {
  return guarded([&] {
    delete &event_of(event);
    return ISTHMUS_OK;
  });
}

isthmus_status event_record(isthmus_event event, isthmus_stream stream) {
  return guarded([&] {
    event_of(event).record(*stream_of(stream));
    return ISTHMUS_OK;
  });
}

isthmus_status event_query(isthmus_event event) {
  return guarded([&] {
    const auto mark = event_of(event).mark();
    return mark == nullptr || mark->time() != 0 ? ISTHMUS_OK : ISTHMUS_NOT_READY;
  });
}

isthmus_status event_synchronize(isthmus_event event) {
  return guarded([&] {
    if (const auto mark = event_of(event).mark()) mark->wait();
    return ISTHMUS_OK;
  });
}

isthmus_status event_elapsed(isthmus_event start, isthmus_event end, double* milliseconds) {
  return guarded([&] {
    Event& first = event_of(start);
    Event& last = event_of(end);
    require(first.timing() && last.timing(), "event_elapsed: create both events with ISTHMUS_EVENT_TIMING");
    const auto begun = first.mark();
    const auto ended = last.mark();
    require(begun != nullptr && ended != nullptr, "event_elapsed: record both events first");
    if (begun->time() == 0 || ended->time() == 0) {
      throw Failure{ISTHMUS_NOT_READY, "event_elapsed: an event is not complete; synchronize it first"};
    }
    *milliseconds = static_cast<double>(ended->time() - begun->time()) / kNanosecondsPerMillisecond;
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
}

}  // namespace sample
