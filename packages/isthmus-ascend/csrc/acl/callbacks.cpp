// Functions of the host in the order of a stream, on the stream's thread or on one that the application
// lends.
#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <unordered_map>

#include "context.h"
#include "stream_work.h"

namespace isthmus::ascend {
namespace {

// A stream waits for the callback (1) or goes on (0).
enum Blocking { kNoBlock = 0, kBlock = 1 };

struct Callback {
  void (*function)(void*);
  void* data;
  bool completed = false;
};

// Callbacks that threads of the application run in aclrtProcessReport(), by thread.
struct Reports {
  std::mutex mutex;
  std::condition_variable changed;
  std::unordered_map<uint64_t, std::deque<std::shared_ptr<Callback>>> queues;

  void push(uint64_t thread, const std::shared_ptr<Callback>& callback, bool wait) {
    std::unique_lock<std::mutex> lock(mutex);
    queues[thread].push_back(callback);
    changed.notify_all();
    if (wait) changed.wait(lock, [&] { return callback->completed; });
  }

  // Null after so many milliseconds without one; -1 waits without a limit.
  std::shared_ptr<Callback> pop(uint64_t thread, int32_t milliseconds) {
    std::unique_lock<std::mutex> lock(mutex);
    auto& queue = queues[thread];
    const auto available = [&] { return !queue.empty(); };
    if (milliseconds < 0) {
      changed.wait(lock, available);
    } else if (!changed.wait_for(lock, std::chrono::milliseconds(milliseconds), available)) {
      return nullptr;
    }
    auto callback = std::move(queue.front());
    queue.pop_front();
    return callback;
  }

  void complete(Callback& callback) {
    const std::lock_guard<std::mutex> lock(mutex);
    callback.completed = true;
    changed.notify_all();
  }
};

Reports& reports() {
  static Reports* const reports = new Reports;
  return *reports;
}

}  // namespace
}  // namespace isthmus::ascend

using namespace isthmus::ascend;

ISTHMUS_ASCEND_EXPORT int aclrtLaunchHostFunc(void* stream, void (*function)(void*), void* data) {
  return call("aclrtLaunchHostFunc", [&] {
    if (function == nullptr) fail(kInvalidParameter, "function is null; pass a valid function");
    enqueue(*stream_of(stream), [=] { function(data); });
  });
}

// thread: as returned by pthread_self(); it runs the stream's callbacks in aclrtProcessReport().
ISTHMUS_ASCEND_EXPORT int aclrtSubscribeReport(uint64_t thread, void* stream) {
  return call("aclrtSubscribeReport", [&] {
    const auto found = stream_of(stream);
    uint64_t none = 0;
    if (!found->subscriber.compare_exchange_strong(none, thread))
      fail(kStreamNotSubscribed, "stream %d is subscribed to already; unsubscribe it first", found->id);
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtUnSubscribeReport(uint64_t thread, void* stream) {
  return call("aclrtUnSubscribeReport", [&] {
    const auto found = stream_of(stream);
    if (!found->subscriber.compare_exchange_strong(thread, 0))
      fail(kStreamNotSubscribed, "stream %d is not subscribed to by this thread", found->id);
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtLaunchCallback(void (*function)(void*), void* data, int blocking,
                                              void* stream) {
  return call("aclrtLaunchCallback", [&] {
    if (function == nullptr) fail(kInvalidParameter, "function is null; pass a valid function");
    if (blocking != kNoBlock && blocking != kBlock)
      fail(kInvalidParameter, "block type %d; pass 0 or 1", blocking);
    const auto found = stream_of(stream);
    const uint64_t thread = found->subscriber;
    if (thread == 0)
      fail(kStreamNoCallback, "no thread runs callbacks of stream %d; call aclrtSubscribeReport() first",
           found->id);
    const auto callback = std::make_shared<Callback>(Callback{function, data});
    enqueue(*found, [=] { reports().push(thread, callback, blocking == kBlock); });
  });
}

// Runs one callback of the calling thread; waits so many milliseconds for it, -1 without a limit.
ISTHMUS_ASCEND_EXPORT int aclrtProcessReport(int32_t milliseconds) {
  return call("aclrtProcessReport", [&] {
    const auto callback = reports().pop(static_cast<uint64_t>(pthread_self()), milliseconds);
    if (callback == nullptr) fail(kReportTimeout, "no callback within %d ms", milliseconds);
    callback->function(callback->data);
    reports().complete(*callback);
  });
}
