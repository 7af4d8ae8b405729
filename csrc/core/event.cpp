#include "core/event.h"

#include <c10/util/Exception.h>

#include "core/stream.h"

namespace isthmus {

void record_event(void** event, c10::Stream stream, bool timing) {
  const isthmus_driver& d = driver();
  if (*event == nullptr) {
    use_device(stream.device_index());
    isthmus_event created = nullptr;
    check(d.event_create(timing ? ISTHMUS_EVENT_TIMING : 0u, &created), "create event");
    *event = created;
  }
  check(d.event_record(static_cast<isthmus_event>(*event), stream_handle(stream)), "record event");
}

void wait_event(void* event, c10::Stream stream) {
  if (event == nullptr) return;  // never recorded: nothing to wait for
  check(driver().stream_wait_event(stream_handle(stream), static_cast<isthmus_event>(event)),
        "wait for event");
  mark_busy(stream);
}

bool query_event(void* event) {
  if (event == nullptr) return true;
  const isthmus_status status = driver().event_query(static_cast<isthmus_event>(event));
  if (status == ISTHMUS_NOT_READY) return false;
  check(status, "query event");
  return true;
}

void synchronize_event(void* event) {
  if (event != nullptr)
    check(driver().event_synchronize(static_cast<isthmus_event>(event)), "synchronize event");
}

void destroy_event(void* event) noexcept {
  if (event != nullptr && !in_bad_fork())
    static_cast<void>(driver_table()->event_destroy(static_cast<isthmus_event>(event)));
}

double elapsed_ms(void* start, void* end) {
  TORCH_CHECK(start != nullptr && end != nullptr, "both events must be recorded before their time is asked.");
  double milliseconds = 0;
  check(driver().event_elapsed(static_cast<isthmus_event>(start), static_cast<isthmus_event>(end),
                               &milliseconds),
        "elapsed time");
  return milliseconds;
}

}  // namespace isthmus
