#include "core/event.h"

#include <c10/util/Exception.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "core/capture.h"
#include "core/host_work.h"
#include "core/profiler.h"
#include "core/stream.h"
#include "core/stream_trace.h"

namespace isthmus {
namespace {

struct Event {
  isthmus_event handle;
  c10::DeviceIndex device;
  bool timing;
  // Capture of the last record, if it was captured.
  std::weak_ptr<Capture> capture{};
  bool captured = false;
  size_t mark = 0;  // mark in the capture
};

// The capture in which the event was recorded, while it lasts.
std::shared_ptr<Capture> capture_of(const Event& event) {
  return capturing() && event.captured ? event.capture.lock() : nullptr;
}

void note_record(Event& event, c10::Stream stream) {
  const std::shared_ptr<Capture> capture = isthmus::capture_of(stream);
  event.capture = capture;
  event.captured = capture != nullptr;
  event.mark = capture ? capture->mark(stream) : 0;
}

// A stream that waits for an event of a capture joins it.
void join_capture(const Event& event, c10::Stream stream) {
  const std::shared_ptr<Capture> capture = capture_of(event);
  if (capture) return capture->join(stream, event.mark);
  require_not_captured(stream, "waiting for an event recorded outside the capture");
}

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
    event->captured = false;
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

Event& event_at(void* event) { return *static_cast<Event*>(event); }

isthmus_event handle_of(void* event) { return event_at(event).handle; }

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
  check(wait_for_host_work([&] { return driver().event_synchronize(event); }), "synchronize event");
}

}  // namespace

void record_event(void** event, c10::Stream stream, bool timing) {
  const isthmus_driver& d = driver();
  if (*event == nullptr) *event = pool().take(stream.device_index(), timing);
  check(d.event_record(handle_of(*event), stream_handle(stream)), "record event");
  if (C10_UNLIKELY(capturing() || event_at(*event).captured)) note_record(event_at(*event), stream);
}

void wait_event(void* event, c10::Stream stream) {
  if (event == nullptr) return;  // never recorded: nothing to wait for
  if (C10_UNLIKELY(capturing())) join_capture(event_at(event), stream);
  wait_for(handle_of(event), stream);
}

bool query_event(void* event) { return event == nullptr || query(handle_of(event)); }

void synchronize_event(void* event) {
  if (event != nullptr) synchronize(handle_of(event));
}

void require_event_not_captured(void* event, const char* what) {
  if (!capturing() || event == nullptr) return;
  if (const auto capture = capture_of(event_at(event))) capture->refuse(what);
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
  require_not_captured(stream, "record() of an interprocess event");
  if (event_ == nullptr) make(stream.device_index());
  TORCH_CHECK(device_ == stream.device_index(), "an event of chip:", static_cast<int>(device_),
              " cannot be recorded on a stream of chip:", static_cast<int>(stream.device_index()), ".");
  check(driver().event_record(event_, stream_handle(stream)), "record event");
  tell(StreamAction::kRecord, event_, stream);
}

void SharedEvent::wait(c10::Stream stream) {
  if (event_ == nullptr) return;  // never recorded: nothing to wait for
  require_not_captured(stream, "wait() for an interprocess event");
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

class ExternalEvent::Record final : public Step {
 public:
  explicit Record(std::shared_ptr<State> state) : state_(std::move(state)) {}
  void replay(c10::Stream stream) override { record_event(&state_->event, stream, state_->timing); }
  const char* name() const noexcept override { return "Event.record"; }
  bool in_thread() const noexcept override { return false; }

 private:
  const std::shared_ptr<State> state_;
};

class ExternalEvent::Wait final : public Step {
 public:
  explicit Wait(std::shared_ptr<State> state) : state_(std::move(state)) {}
  void replay(c10::Stream stream) override { wait_event(state_->event, stream); }
  const char* name() const noexcept override { return "Event.wait"; }
  bool in_thread() const noexcept override { return false; }

 private:
  const std::shared_ptr<State> state_;
};

void ExternalEvent::record(c10::Stream stream) {
  const auto capture = capture_of(stream);
  if (!capture) return record_event(&state_->event, stream, state_->timing);
  if (capture->by_driver()) capture->refuse("record() of an external event");
  capture->add(stream, std::make_unique<Record>(state_));
}

void ExternalEvent::wait(c10::Stream stream) {
  const auto capture = capture_of(stream);
  if (!capture) return wait_event(state_->event, stream);
  if (capture->by_driver()) capture->refuse("wait() for an external event");
  capture->add(stream, std::make_unique<Wait>(state_));
}

}  // namespace isthmus
