#include "stream_work.h"

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "context.h"
#include "failures.h"
#include "model.h"
#include "task_group.h"

namespace isthmus::ascend {
namespace {

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

std::chrono::steady_clock::time_point deadline_after(int32_t milliseconds) {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
}

WorkPlace place_in(const Stream& stream) { return {stream.status, stream.status->next()}; }

void synchronize(const Stream& stream) {
  check(chip().stream_synchronize(stream.queue));
  stream.status->throw_failure();
  throw_failure(stream.device);
}

}  // namespace

void enqueue_work(const Stream& stream, std::unique_ptr<Work> work) {
  const std::shared_lock lock(captures());
  enqueue_held(stream, std::move(work));
}

void enqueue_held(const Stream& stream, std::unique_ptr<Work> work) {
  if (keep_as_update(stream, work) || keep_in_model(stream, work)) return;
  const auto run_once = [](void* data) { std::unique_ptr<Work>(static_cast<Work*>(data))->run(); };
  check(chip().stream_host_function(stream.queue, run_once, work.get()));
  work.release();
}

void wait_for_streams(int32_t device, int32_t milliseconds) {
  const auto limit = deadline_after(milliseconds);
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
    enqueue(*found, [function, owned = std::move(owned), place = place_in(*found)] {
      const WorkScope scope(place);
      if (!WorkScope::current()->status->has_stopped()) function(owned.get());
    });
  });
}

ISTHMUS_ASCEND_EXPORT int isthmus_ascend_defer(void* stream, int code) {
  if (code == kSuccess || is_strict() || !isthmus_ascend_in_task_queue()) return code;
  return call("isthmus_ascend_defer", [&] {
    const auto found = stream_of(stream);
    enqueue(*found, [place = place_in(*found), failure = Failure{kAicoreException, last_message()}] {
      place.status->fail(place.number, failure);
    });
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtDestroyStream(void* stream) {
  return call("aclrtDestroyStream", [&] {
    if (is_captured(*stream_of(stream)))
      fail(kInvalidParameter, "the stream is captured; call aclmdlRICaptureEnd() first");
    const auto found = remove_stream(stream);
    check(chip().stream_synchronize(found->queue));
  });
}

// Does not wait; work enqueued so far still runs. A capture that began on the stream ends with it.
ISTHMUS_ASCEND_EXPORT int aclrtDestroyStreamForce(void* stream) {
  return call("aclrtDestroyStreamForce", [&] {
    const auto found = remove_stream(stream);
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
    if (milliseconds >= 0) wait(*found, deadline_after(milliseconds));
    synchronize(*found);
  });
}
