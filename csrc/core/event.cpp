#include "core/event.h"

#include <c10/util/Exception.h>

#include <cstring>
#include <mutex>
#include <vector>

#include "core/profiler.h"
#include "core/stream.h"
#include "core/stream_trace.h"

namespace isthmus {
namespace {

struct Event {
  isthmus_event handle;
  c10::DeviceIndex device;
  bool timing;
};

// Events are reused even if their last work is not done: a new record replaces it, and waits for the old one
// are not affected. So a training step creates no events and sets no device for them. Leaked: events may be
// returned during static destruction.
class EventPool {
 public:
  Event* take(c10::DeviceIndex device, bool timing) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      std::vector<Event*>& free = free_[device][timing ? 1 : 0];
      if (!free.empty()) {
        Event* const event = free.back();
        free.pop_back();
        return event;
      }
    }
    isthmus_event handle = nullptr;
    use_device(device);
    check(driver().event_create(timing ? ISTHMUS_EVENT_TIMING : 0u, &handle), "create event");
    return new Event{handle, device, timing};
  }

  void give(Event* event) {
    std::lock_guard<std::mutex> lock(mutex_);
    free_[event->device][event->timing ? 1 : 0].push_back(event);
  }

 private:
  std::mutex mutex_;
  std::vector<Event*> free_[kMaxDevices][2];
};

EventPool& pool() {
  static EventPool& instance = *new EventPool;
  return instance;
}

isthmus_event handle_of(void* event) { return static_cast<Event*>(event)->handle; }

void wait_for(isthmus_event event, c10::Stream stream) {
  const profiler::Call call("chipStreamWaitEvent");
  check(driver().stream_wait_event(stream_handle(stream), event), "wait for event");
  mark_busy(stream);
}

bool query(isthmus_event event) {
  const isthmus_status status = driver().event_query(event);
  if (status == ISTHMUS_NOT_READY) return false;
  check(status, "query event");
  return true;
}

void synchronize(isthmus_event event) {
  const profiler::Call call("chipEventSynchronize");
  check(driver().event_synchronize(event), "synchronize event");
}

}  // namespace

void record_event(void** event, c10::Stream stream, bool timing) {
  const isthmus_driver& d = driver();
  if (*event == nullptr) *event = pool().take(stream.device_index(), timing);
  check(d.event_record(handle_of(*event), stream_handle(stream)), "record event");
}

void wait_event(void* event, c10::Stream stream) {
  if (event != nullptr) wait_for(handle_of(event), stream);  // never recorded: nothing to wait for
}

bool query_event(void* event) { return event == nullptr || query(handle_of(event)); }

void synchronize_event(void* event) {
  if (event != nullptr) synchronize(handle_of(event));
}

void destroy_event(void* event) noexcept {
  if (event != nullptr && !in_bad_fork()) pool().give(static_cast<Event*>(event));
}

double elapsed_ms(void* start, void* end) {
  TORCH_CHECK(start != nullptr && end != nullptr, "record both events before calling elapsed_time().");
  double milliseconds = 0;
  check(driver().event_elapsed(handle_of(start), handle_of(end), &milliseconds), "elapsed time");
  return milliseconds;
}

namespace {
const isthmus_driver& driver_that_shares() {
  const isthmus_driver& d = driver();
  TORCH_CHECK_NOT_IMPLEMENTED(ISTHMUS_HAS(d, event_export) && ISTHMUS_HAS(d, event_import), "driver ", d.name,
                              " cannot share events between processes: it has no event_export; remove "
                              "interprocess=True.");
  return d;
}
}  // namespace

SharedEvent::SharedEvent(c10::DeviceIndex device, const std::string& ipc_handle) {
  isthmus_ipc_handle handle{};
  TORCH_CHECK_VALUE(ipc_handle.size() == sizeof(handle.bytes), "the handle of an event has ",
                    sizeof(handle.bytes), " bytes, this one ", ipc_handle.size(),
                    "; pass the result of Event.ipc_handle().");
  std::memcpy(handle.bytes, ipc_handle.data(), sizeof(handle.bytes));
  check_device(device);
  const isthmus_driver& d = driver_that_shares();
  use_device(device);
  check(d.event_import(&handle, &event_), "import event");
  device_ = device;
}

SharedEvent::~SharedEvent() {
  if (event_ != nullptr && !in_bad_fork()) static_cast<void>(driver_table()->event_destroy(event_));
}

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
  if (event_ == nullptr) return;  // never recorded: nothing to wait for
  wait_for(event_, stream);
  tell(StreamAction::kWait, event_, stream);
}

bool SharedEvent::query() {
  const bool done = event_ == nullptr || isthmus::query(event_);
  if (done) tell(StreamAction::kEventDone, event_, default_stream(0));
  return done;
}

void SharedEvent::synchronize() {
  if (event_ != nullptr) isthmus::synchronize(event_);
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
