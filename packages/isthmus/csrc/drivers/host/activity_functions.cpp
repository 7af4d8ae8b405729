// Activity records for the profiler.
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "activity.h"
#include "device.h"
#include "error.h"
#include "parts.h"

namespace isthmus::host {
namespace activity {

namespace detail {
std::atomic<bool> recording{false};
}

namespace {

constexpr size_t kBatch = 1024;

thread_local uint64_t thread_correlation = 0;

uint64_t now_ns() noexcept {
  timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

// Collects records and delivers them in batches on a separate thread.
class Recorder {
 public:
  void start(isthmus_activity_callback callback, void* user_data) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (thread_.joinable()) {
      fail(ISTHMUS_INVALID_ARGUMENT,
           "activity_start: recording is already active; call activity_stop() first");
    }
    callback_ = callback;
    user_data_ = user_data;
    stopping_ = false;
    thread_ = std::thread([this] { deliver(); });
    pthread_setname_np(thread_.native_handle(), "isthmus-records");
    detail::recording.store(true, std::memory_order_release);
  }

  void stop() {
    detail::recording.store(false, std::memory_order_release);
    std::thread thread;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
      thread = std::move(thread_);
      wake_.notify_one();
    }
    if (thread.joinable()) thread.join();
  }

  void add(const isthmus_activity& record) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_) return;  // work that ends after the last delivery
    records_.push_back(record);
    if (records_.size() == kBatch) wake_.notify_one();
  }

 private:
  void deliver() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);  // signals are for the application's threads
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return stopping_ || records_.size() >= kBatch; });
      const std::vector<isthmus_activity> batch = std::move(records_);
      records_.clear();
      const bool last = stopping_;
      lock.unlock();
      if (!batch.empty()) callback_(batch.data(), batch.size(), user_data_);
      if (last) return;
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<isthmus_activity> records_;
  std::thread thread_;
  isthmus_activity_callback callback_ = nullptr;
  void* user_data_ = nullptr;
  bool stopping_ = true;
};

// Leaked: streams may end work after main().
Recorder& recorder() {
  static Recorder& instance = *new Recorder;
  return instance;
}

}  // namespace

uint64_t correlation() noexcept { return thread_correlation; }

Span::Span(isthmus_activity_kind kind, const char* name, const Stream& stream, uint64_t bytes,
           uint64_t correlation) {
  record_.struct_size = sizeof(record_);
  record_.kind = kind;
  record_.device = stream.device();
  Device& device = device_at(stream.device());
  // The default stream's handle is null.
  record_.stream = &stream == &device.default_stream() ? nullptr : handle_of(const_cast<Stream&>(stream));
  record_.correlation = correlation;
  record_.bytes = bytes;
  record_.name = name;
  record_.start_ns = now_ns();
}

Span::~Span() {
  record_.end_ns = now_ns();
  recorder().add(record_);
}

}  // namespace activity

namespace {

isthmus_status activity_start(isthmus_activity_callback callback, void* user_data) {
  return call([&] {
    if (callback == nullptr)
      fail(ISTHMUS_INVALID_ARGUMENT, "activity_start: callback is null; pass a function");
    activity::recorder().start(callback, user_data);
    return ISTHMUS_OK;
  });
}

isthmus_status activity_stop() {
  return call([] {
    activity::recorder().stop();
    return ISTHMUS_OK;
  });
}

isthmus_status activity_push_correlation(uint64_t correlation) {
  activity::thread_correlation = correlation;
  return ISTHMUS_OK;
}

}  // namespace

void add_activity_functions(isthmus_driver& table) {
  table.activity_start = activity_start;
  table.activity_stop = activity_stop;
  table.activity_push_correlation = activity_push_correlation;
}

}  // namespace isthmus::host
