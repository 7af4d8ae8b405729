#include "core/event.h"

#include <c10/util/Exception.h>

#include <cstring>

#include "core/profiler.h"
#include "core/stream.h"
#include "core/stream_trace.h"

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
  const profiler::Call call("chipStreamWaitEvent");
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
  if (event == nullptr) return;
  const profiler::Call call("chipEventSynchronize");
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

namespace {
const isthmus_driver& driver_that_shares() {
  const isthmus_driver& d = driver();
  TORCH_CHECK_NOT_IMPLEMENTED(ISTHMUS_HAS(d, event_export) && ISTHMUS_HAS(d, event_import), "driver ", d.name,
                              " cannot share events between processes: it has no event_export; leave "
                              "interprocess=True out.");
  return d;
}
}  // namespace

SharedEvent::SharedEvent(c10::DeviceIndex device, const std::string& ipc_handle) {
  isthmus_ipc_handle handle{};
  TORCH_CHECK_VALUE(ipc_handle.size() == sizeof(handle.bytes), "the handle of an event has ",
                    sizeof(handle.bytes), " bytes, this one ", ipc_handle.size(),
                    "; pass what Event.ipc_handle() gave.");
  std::memcpy(handle.bytes, ipc_handle.data(), sizeof(handle.bytes));
  check_device(device);
  const isthmus_driver& d = driver_that_shares();
  use_device(device);
  check(d.event_import(&handle, &event_), "import event");
  device_ = device;
}

SharedEvent::~SharedEvent() { destroy_event(event_); }

void SharedEvent::make(c10::DeviceIndex device) {
  const isthmus_driver& d = driver_that_shares();
  use_device(device);
  check(d.event_create(ISTHMUS_EVENT_SHARED, &event_), "create event");
  device_ = device;
}

void SharedEvent::record(c10::Stream stream) {
  if (event_ == nullptr) make(stream.device_index());
  TORCH_CHECK(device_ == stream.device_index(), "an event of chip:", static_cast<int>(device_),
              " cannot be recorded on a stream of chip:", static_cast<int>(stream.device_index()), ".");
  check(driver().event_record(event_, stream_handle(stream)), "record event");
  tell(StreamAction::kRecord, event_, stream);
}

void SharedEvent::wait(c10::Stream stream) {
  wait_event(event_, stream);
  tell(StreamAction::kWait, event_, stream);
}

bool SharedEvent::query() {
  const bool done = query_event(event_);
  if (done) tell(StreamAction::kEventDone, event_, default_stream(0));
  return done;
}

void SharedEvent::synchronize() {
  synchronize_event(event_);
  tell(StreamAction::kEventDone, event_, default_stream(0));
}

std::string SharedEvent::ipc_handle() {
  const isthmus_driver& d = driver_that_shares();
  if (event_ == nullptr) make(current_device());
  isthmus_ipc_handle handle{};
  check(d.event_export(event_, &handle), "export event");
  return {handle.bytes, sizeof(handle.bytes)};
}

}  // namespace isthmus
