// Events, and waits of streams for events and for values in memory.
#include <chrono>
#include <cstring>
#include <deque>
#include <thread>

#include "context.h"
#include "failures.h"
#include "memory.h"
#include "model.h"
#include "stream_work.h"

namespace isthmus::ascend {
namespace {

constexpr int kTimestampInvalid = 107006;
constexpr uint32_t kShared = 0x40;   // flag ACL_EVENT_IPC
constexpr size_t kHandleBytes = 64;  // aclrtIpcEventHandle
constexpr uint32_t kWaitEqual = 1, kWaitGreaterEqual = 0;

struct Event {
  isthmus_event event;
  const int32_t device;
  std::atomic<int> waits{0};  // outstanding waits of streams
  std::mutex mutex;           // guards what follows
  WorkPlace recorded;         // what the event waits for

  WorkPlace place() {
    const std::lock_guard<std::mutex> lock(mutex);
    return recorded;
  }

  Event(isthmus_event event, int32_t device) : event(event), device(device) {}
  ~Event() { chip().event_destroy(event); }
};

Handles<Event>& events() {
  static Handles<Event>* const events = new Handles<Event>{HandleKind::kEvent};
  return *events;
}

// The events that were destroyed last. torch_npu has a thread for each device's queue: one may destroy an
// event before another makes its stream wait for it.
class Destroyed {
 public:
  void add(const void* handle, std::shared_ptr<Event> event) {
    std::shared_ptr<Event> oldest;
    const std::lock_guard lock(mutex_);
    last_.emplace_back(handle, std::move(event));
    if (last_.size() <= kKept) return;
    oldest = std::move(last_.front().second);
    last_.pop_front();
  }

  // Null if it is not among them.
  std::shared_ptr<Event> get(const void* handle) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [each, event] : last_)
      if (each == handle) return event;
    return nullptr;
  }

 private:
  static constexpr size_t kKept = 64;
  mutable std::mutex mutex_;
  std::deque<std::pair<const void*, std::shared_ptr<Event>>> last_;
};

Destroyed& destroyed_events() {
  static Destroyed* const destroyed = new Destroyed;
  return *destroyed;
}

std::shared_ptr<Event> event_of(const void* handle) {
  return require_found("event", handle, events().get(handle));
}

void create_event(void** handle, uint32_t flags) {
  require_not_null(handle, "event");
  isthmus_event event = nullptr;
  check(current_chip().event_create((flags & kShared) != 0 ? ISTHMUS_EVENT_SHARED : ISTHMUS_EVENT_TIMING,
                                    &event));
  *handle = events().add(std::make_shared<Event>(event, current_context()->device));
}

bool stops(const WorkPlace& source) {
  return source.status != nullptr && source.status->cause(source.number).has_value();
}

// A stream that waits for what has not run stops too.
void pass_on(const WorkPlace& source, const WorkPlace& waiter) {
  if (source.status == nullptr || source.status == waiter.status) return;
  if (auto cause = source.status->cause(source.number)) waiter.status->fail(waiter.number, *std::move(cause));
}

bool is_completed(const Event& event) {
  const isthmus_status status = chip().event_query(event.event);
  if (status != ISTHMUS_NOT_READY) check(status);
  return status == ISTHMUS_OK;
}

double elapsed_ms(isthmus_event from, isthmus_event to) {
  double milliseconds = 0;
  if (chip().event_elapsed(from, to, &milliseconds) != ISTHMUS_OK)
    fail(kTimestampInvalid, "%s", chip().last_error());
  return milliseconds;
}

// An event whose time is known; others are measured from it.
struct Origin {
  isthmus_event event = nullptr;
  double microseconds = 0;  // CLOCK_REALTIME

  Origin() {
    isthmus_stream stream = nullptr;
    check(chip().stream_create(ISTHMUS_STREAM_PRIORITY_DEFAULT, &stream));
    check(chip().event_create(ISTHMUS_EVENT_TIMING, &event));
    check(chip().event_record(event, stream));
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    microseconds = std::chrono::duration<double, std::micro>(now).count();
    check(chip().stream_destroy(stream));
  }
};

}  // namespace
}  // namespace isthmus::ascend

using namespace isthmus::ascend;

ISTHMUS_ASCEND_EXPORT int aclrtCreateEvent(void** event) {
  return call("aclrtCreateEvent", [&] { create_event(event, 0); });
}

ISTHMUS_ASCEND_EXPORT int aclrtCreateEventWithFlag(void** event, uint32_t flags) {
  return call("aclrtCreateEventWithFlag", [&] { create_event(event, flags); });
}

ISTHMUS_ASCEND_EXPORT int aclrtCreateEventExWithFlag(void** event, uint32_t flags) {
  return call("aclrtCreateEventExWithFlag", [&] { create_event(event, flags); });
}

// Streams that wait for the event keep waiting for the work that it captured.
ISTHMUS_ASCEND_EXPORT int aclrtDestroyEvent(void* event) {
  return call("aclrtDestroyEvent",
              [&] { destroyed_events().add(event, require_found("event", event, events().remove(event))); });
}

ISTHMUS_ASCEND_EXPORT int aclrtRecordEvent(void* event, void* stream) {
  return call("aclrtRecordEvent", [&] {
    const auto recorded = event_of(event);
    const auto found = stream_of(stream);
    {
      const std::lock_guard<std::mutex> lock(recorded->mutex);
      recorded->recorded = {found->status, found->status->given()};
    }
    check(chip().event_record(recorded->event, queue_of(*found)));
  });
}

// An event is recorded again without a reset.
ISTHMUS_ASCEND_EXPORT int aclrtResetEvent(void* event, void* stream) {
  return call("aclrtResetEvent", [&] {
    event_of(event);
    stream_of(stream);
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtStreamWaitEvent(void* stream, void* event) {
  return call("aclrtStreamWaitEvent", [&] {
    auto found = events().get(event);
    if (found == nullptr) found = destroyed_events().get(event);
    const auto waited = require_found("event", event, found);
    const auto waiter = stream_of(stream);
    const std::lock_guard lock(captures());  // the stream may join the event's capture
    check(chip().stream_wait_event(queue_of(*waiter), waited->event));
    if (is_captured(*waiter)) return;
    const WorkPlace source = waited->place();
    const bool completed = is_completed(*waited);
    if (completed && !stops(source)) return;
    if (!completed) ++waited->waits;
    const WorkPlace place{waiter->status, waiter->status->next()};
    enqueue_held(*waiter, work_of([waited, completed, source, place] {
      if (!completed) --waited->waits;
      pass_on(source, place);
    }));
  });
}

// status: 0 not ready, 1 completed.
ISTHMUS_ASCEND_EXPORT int aclrtQueryEventStatus(void* event, int* status) {
  return call("aclrtQueryEventStatus", [&] {
    require_not_null(status, "status");
    *status = is_completed(*event_of(event)) ? 1 : 0;
  });
}

// status: 0 completed, 1 not ready.
ISTHMUS_ASCEND_EXPORT int aclrtQueryEventWaitStatus(void* event, int* status) {
  return call("aclrtQueryEventWaitStatus", [&] {
    require_not_null(status, "status");
    *status = event_of(event)->waits == 0 ? 0 : 1;
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtSynchronizeEvent(void* event) {
  return call("aclrtSynchronizeEvent", [&] {
    const auto waited = event_of(event);
    check(chip().event_synchronize(waited->event));
    const WorkPlace source = waited->place();
    if (source.status != nullptr) source.status->throw_failure(source.number);
    throw_failure(waited->device);
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtEventElapsedTime(float* milliseconds, void* start, void* end) {
  return call("aclrtEventElapsedTime", [&] {
    require_not_null(milliseconds, "milliseconds");
    *milliseconds = static_cast<float>(elapsed_ms(event_of(start)->event, event_of(end)->event));
  });
}

// Microseconds of the system's clock.
ISTHMUS_ASCEND_EXPORT int aclrtEventGetTimestamp(void* event, uint64_t* microseconds) {
  return call("aclrtEventGetTimestamp", [&] {
    require_not_null(microseconds, "microseconds");
    static const Origin origin;
    const double after = elapsed_ms(origin.event, event_of(event)->event) * 1000;
    *microseconds = static_cast<uint64_t>(origin.microseconds + after);
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtIpcGetEventHandle(void* event, char* handle) {
  return call("aclrtIpcGetEventHandle", [&] {
    require_not_null(handle, "handle");
    isthmus_ipc_handle exported{};
    check(chip().event_export(event_of(event)->event, &exported));
    std::memcpy(handle, exported.bytes, kHandleBytes);
  });
}

struct aclrtIpcEventHandle {
  char bytes[kHandleBytes];
};

ISTHMUS_ASCEND_EXPORT int aclrtIpcOpenEventHandle(aclrtIpcEventHandle handle, void** event) {
  return call("aclrtIpcOpenEventHandle", [&] {
    require_not_null(event, "event");
    isthmus_ipc_handle exported{};
    std::memcpy(exported.bytes, handle.bytes, kHandleBytes);
    isthmus_event imported = nullptr;
    check(current_chip().event_import(&exported, &imported));
    *event = events().add(std::make_shared<Event>(imported, current_context()->device));
  });
}

// Writes eight bytes of device memory in the stream's order.
ISTHMUS_ASCEND_EXPORT int aclrtValueWrite(void* address, uint64_t value, uint32_t, void* stream) {
  return call("aclrtValueWrite", [&] {
    uint64_t* const target = value_at(address);
    enqueue(*stream_of(stream), [=] { __atomic_store_n(target, value, __ATOMIC_RELEASE); });
  });
}

// Holds the stream until eight bytes of device memory equal the value, or are at least the value.
ISTHMUS_ASCEND_EXPORT int aclrtValueWait(void* address, uint64_t value, uint32_t condition, void* stream) {
  return call("aclrtValueWait", [&] {
    if (condition != kWaitEqual && condition != kWaitGreaterEqual)
      fail(kUnsupported, "condition %u; the host chip waits for 0 (at least) or 1 (equal)", condition);
    const uint64_t* const source = value_at(address);
    enqueue(*stream_of(stream), [=] {
      for (;;) {
        const uint64_t found = __atomic_load_n(source, __ATOMIC_ACQUIRE);
        if (condition == kWaitEqual ? found == value : found >= value) return;
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
    });
  });
}
