#include "stream.h"

#include <chrono>
#include <condition_variable>

#include "context.h"
#include "enqueue.h"
#include "failures.h"
#include "model.h"

namespace isthmus::ascend {
namespace {

// Smaller numbers are higher priorities.
constexpr uint32_t kHighestPriority = 0, kLowestPriority = 7;

struct Streams {
  Handles<Stream> handles{HandleKind::kStream};
  std::atomic<int32_t> next_id{0};
  std::mutex mutex;                                               // guards what follows
  std::unordered_map<int32_t, std::shared_ptr<Stream>> defaults;  // keyed by device
};

Streams& streams() {
  static Streams* const streams = new Streams;
  return *streams;
}

std::shared_ptr<Stream> default_stream(int32_t device) {
  const std::lock_guard<std::mutex> lock(streams().mutex);
  auto& stream = streams().defaults[device];
  if (stream == nullptr) {
    isthmus_stream queue = nullptr;
    check(chip().stream_default(&queue));
    stream = std::make_shared<Stream>(queue, device, streams().next_id++);
  }
  return stream;
}

// A point in the work of a stream; outlives a waiter that gave up.
class Marker {
 public:
  void complete() {
    const std::lock_guard<std::mutex> lock(mutex_);
    completed_ = true;
    changed_.notify_all();
  }

  bool wait_until(std::chrono::steady_clock::time_point limit) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_until(lock, limit, [&] { return completed_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool completed_ = false;
};

// Waits for the work enqueued so far. Throws kStreamTimeout.
void wait(const Stream& stream, std::chrono::steady_clock::time_point limit) {
  const isthmus_status status = chip().stream_query(stream.queue);
  if (status == ISTHMUS_OK) return;
  if (status != ISTHMUS_NOT_READY) check(status);
  const auto marker = std::make_shared<Marker>();
  enqueue(stream, [marker] { marker->complete(); });
  if (!marker->wait_until(limit))
    fail(kStreamTimeout, "stream %d of device %d did not finish its work within the limit", stream.id,
         stream.device);
}

std::chrono::steady_clock::time_point after(int32_t milliseconds) {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
}

void synchronize(const Stream& stream) {
  check(chip().stream_synchronize(stream.queue));
  throw_failure(stream.device);
}

// The host chip has no priorities: a stream only remembers its own.
void create_stream(void** handle, uint32_t priority) {
  require_not_null(handle, "stream");
  if (priority > kLowestPriority)
    fail(kInvalidParameter, "priority %u is not within %u to %u", priority, kHighestPriority,
         kLowestPriority);
  const int32_t device = current_context()->device;
  isthmus_stream queue = nullptr;
  check(chip().stream_create(ISTHMUS_STREAM_PRIORITY_DEFAULT, &queue));
  *handle = streams().handles.add(std::make_shared<Stream>(queue, device, streams().next_id++, priority));
}

}  // namespace

// Default streams, which the driver owns, are never destroyed.
Stream::~Stream() { chip().stream_destroy(queue); }

std::shared_ptr<Stream> stream_of(const void* handle) {
  if (handle == nullptr) return default_stream(current_context()->device);
  return require_found("stream", handle, streams().handles.get(handle));
}

void enqueue_work(const Stream& stream, std::unique_ptr<Work> work) {
  const std::shared_lock lock(captures());
  enqueue_held(stream, std::move(work));
}

void enqueue_held(const Stream& stream, std::unique_ptr<Work> work) {
  if (keep_in_model(stream, work)) return;
  const auto run_once = [](void* data) { std::unique_ptr<Work>(static_cast<Work*>(data))->run(); };
  check(chip().stream_host_function(stream.queue, run_once, work.get()));
  work.release();
}

isthmus_stream queue_of(const Stream& stream) {
  if (stream.updates)
    fail(kUnsupported, "stream %d updates a task group: only operators can be updated", stream.id);
  return stream.queue;
}

std::vector<std::shared_ptr<Stream>> streams_of(int32_t device) {
  std::vector<std::shared_ptr<Stream>> found{default_stream(device)};
  for (const auto& [handle, stream] : streams().handles.all())
    if (stream->device == device) found.push_back(stream);
  return found;
}

void wait_for_streams(int32_t device, int32_t milliseconds) {
  const auto limit = after(milliseconds);
  for (const auto& stream : streams_of(device)) wait(*stream, limit);
}

}  // namespace isthmus::ascend

using namespace isthmus::ascend;

ISTHMUS_ASCEND_EXPORT int isthmus_ascend_enqueue(void* stream, void (*function)(void*),
                                                 void (*destroy)(void*), void* data) {
  std::unique_ptr<void, void (*)(void*)> owned(destroy == nullptr ? nullptr : data, destroy);
  return call("isthmus_ascend_enqueue", [&] {
    require_not_null(reinterpret_cast<void*>(destroy), "destroy");
    require_not_null(reinterpret_cast<void*>(function), "function");
    const auto found = stream_of(stream);
    enqueue(*found, [function, owned = std::move(owned), device = found->device] {
      set_device_of_work(device);
      function(owned.get());
    });
  });
}

ISTHMUS_ASCEND_EXPORT int isthmus_ascend_queue(void* stream, isthmus_stream_t** queue, int* device) {
  return call("isthmus_ascend_queue", [&] {
    require_not_null(queue, "queue");
    require_not_null(device, "device");
    const auto found = stream_of(stream);
    *queue = queue_of(*found);
    *device = found->device;
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtCreateStream(void** stream) {
  return call("aclrtCreateStream", [&] { create_stream(stream, kHighestPriority); });
}

// The host chip has no kinds of streams.
ISTHMUS_ASCEND_EXPORT int aclrtCreateStreamWithConfig(void** stream, uint32_t priority, uint32_t) {
  return call("aclrtCreateStreamWithConfig", [&] { create_stream(stream, priority); });
}

ISTHMUS_ASCEND_EXPORT int aclrtDeviceGetStreamPriorityRange(int32_t* lowest, int32_t* highest) {
  return call("aclrtDeviceGetStreamPriorityRange", [&] {
    require_not_null(lowest, "lowest");
    require_not_null(highest, "highest");
    *lowest = kLowestPriority;
    *highest = kHighestPriority;
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtStreamGetPriority(void* stream, uint32_t* priority) {
  return call("aclrtStreamGetPriority", [&] {
    require_not_null(priority, "priority");
    *priority = stream_of(stream)->priority;
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtDestroyStream(void* stream) {
  return call("aclrtDestroyStream", [&] {
    if (is_captured(*stream_of(stream)))
      fail(kInvalidParameter, "the stream is captured; call aclmdlRICaptureEnd() first");
    const auto found = require_found("stream", stream, streams().handles.remove(stream));
    check(chip().stream_synchronize(found->queue));
  });
}

// Does not wait; work enqueued so far still runs. A capture that began on the stream ends with it.
ISTHMUS_ASCEND_EXPORT int aclrtDestroyStreamForce(void* stream) {
  return call("aclrtDestroyStreamForce", [&] {
    const auto found = require_found("stream", stream, streams().handles.remove(stream));
    const std::lock_guard lock(captures());
    abandon_capture(*found);
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtSynchronizeStream(void* stream) {
  return call("aclrtSynchronizeStream", [&] { synchronize(*stream_of(stream)); });
}

// milliseconds: -1 waits without a limit.
ISTHMUS_ASCEND_EXPORT int aclrtSynchronizeStreamWithTimeout(void* stream, int32_t milliseconds) {
  return call("aclrtSynchronizeStreamWithTimeout", [&] {
    const auto found = stream_of(stream);
    if (milliseconds >= 0) wait(*found, after(milliseconds));
    synchronize(*found);
  });
}

// status: 0 completed, 1 not ready.
ISTHMUS_ASCEND_EXPORT int aclrtStreamQuery(void* stream, int* status) {
  return call("aclrtStreamQuery", [&] {
    require_not_null(status, "status");
    const isthmus_status found = chip().stream_query(stream_of(stream)->queue);
    if (found != ISTHMUS_NOT_READY) check(found);
    *status = found == ISTHMUS_NOT_READY ? 1 : 0;
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtStreamGetId(void* stream, int32_t* id) {
  return call("aclrtStreamGetId", [&] {
    require_not_null(id, "id");
    *id = stream_of(stream)->id;
  });
}

// Accepted: the host chip stops at no failure of a task.
ISTHMUS_ASCEND_EXPORT int aclrtSetStreamFailureMode(void* stream, uint64_t) {
  return call("aclrtSetStreamFailureMode", [&] { stream_of(stream); });
}

// Accepted: floating-point overflow gives infinities, as on a 910B.
ISTHMUS_ASCEND_EXPORT int aclrtSetStreamOverflowSwitch(void* stream, uint32_t flag) {
  return call("aclrtSetStreamOverflowSwitch", [&] { stream_of(stream)->overflow_switch = flag; });
}

ISTHMUS_ASCEND_EXPORT int aclrtGetStreamOverflowSwitch(void* stream, uint32_t* flag) {
  return call("aclrtGetStreamOverflowSwitch", [&] {
    require_not_null(flag, "flag");
    *flag = stream_of(stream)->overflow_switch;
  });
}
