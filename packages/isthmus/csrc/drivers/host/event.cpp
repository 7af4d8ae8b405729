#include "event.h"

#include <time.h>

#include <utility>

#include "driver.h"
#include "error.h"
#include "shared_event.h"
#include "stream.h"

namespace isthmus::host {
namespace {

int64_t now_ns() noexcept {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// The last record of a shared event, by any process.
class SharedRecord final : public Awaited {
 public:
  SharedRecord(std::shared_ptr<SharedEvent> event, uint64_t number)
      : event_(std::move(event)), number_(number) {}

  const Stream* stream() const override { return nullptr; }
  void wait() override { event_->wait(number_); }

 private:
  const std::shared_ptr<SharedEvent> event_;
  const uint64_t number_;
};

}  // namespace

void Record::complete() {
  const std::lock_guard<std::mutex> lock(mutex_);
  time_ns_.store(now_ns(), std::memory_order_release);
  completed_.notify_all();
}

void Record::wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  completed_.wait(lock, [&] { return done(); });
}

Event::Event(uint32_t flags)
    : flags_(flags),
      shared_((flags & ISTHMUS_EVENT_SHARED) != 0 ? std::make_shared<SharedEvent>() : nullptr) {}

Event::Event(std::shared_ptr<SharedEvent> shared)
    : flags_(ISTHMUS_EVENT_SHARED), shared_(std::move(shared)) {}

void Event::record(Stream& stream) {
  if (shared_ != nullptr) return record_shared(stream);
  auto capture = stream.capturing() ? stream.capture() : nullptr;
  // Held over submit(), so that the last record() by time is the last by the stream's order too.
  const std::lock_guard<std::mutex> lock(mutex_);
  capture_ = capture;
  if (capture != nullptr) {
    record_.reset();
    time_ns_ = 0;
    mark_ = capture->mark(stream);
    return;
  }
  if (stream.idle()) {
    record_.reset();
    time_ns_ = now_ns();
    return;
  }
  auto record = std::make_shared<Record>(&stream);
  stream.submit_uncaptured([record] { record->complete(); }, "event_record");
  record_ = std::move(record);
}

void Event::record_shared(Stream& stream) {
  constexpr const char* kFunction = "event_record of a shared event";
  stream.require_not_captured(kFunction);
  const uint64_t number = shared_->start();
  if (stream.idle()) return shared_->finish(number);
  try {
    stream.submit_uncaptured([shared = shared_, number] { shared->finish(number); }, kFunction);
  } catch (...) {
    shared_->finish(number);
    throw;
  }
}

std::shared_ptr<Awaited> Event::pending() {
  if (shared_ != nullptr) {
    const uint64_t number = shared_->pending();
    return number != 0 ? std::make_shared<SharedRecord>(shared_, number) : nullptr;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto capture = capture_.lock(); capture != nullptr && capture->active()) {
    fail(ISTHMUS_INVALID_ARGUMENT,
         "the event is part of a capture in progress; query it, or wait for it, after graph_end()");
  }
  return record_ != nullptr && !record_->done() ? record_ : nullptr;
}

bool Event::wait_in_capture(Stream& stream) {
  const auto capture = stream.capturing() ? stream.capture() : nullptr;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto own = capture_.lock();
  if (own != nullptr && own->active()) {
    if (capture != own) own->join(stream);
    own->join_work(stream, mark_);
    return true;
  }
  const bool recorded = shared_ != nullptr || record_ != nullptr || time_ns_ != 0;
  if (capture != nullptr && recorded) {
    fail(
        ISTHMUS_INVALID_ARGUMENT,
        "stream_wait_event: the stream is captured, the event was recorded outside the capture; record it in "
        "the capture, or wait before graph_begin()");
  }
  return capture != nullptr;
}

void Event::require_timing(const char* argument) const {
  if ((flags_ & ISTHMUS_EVENT_TIMING) == 0) {
    fail(ISTHMUS_INVALID_ARGUMENT,
         "event_elapsed: event %s has no timing; create it with ISTHMUS_EVENT_TIMING", argument);
  }
}

int64_t Event::time_ns(const char* argument) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const int64_t time = record_ != nullptr ? record_->time_ns() : time_ns_;
  if (time != 0) return time;
  if (record_ != nullptr) {
    fail(ISTHMUS_NOT_READY, "event_elapsed: event %s is not done yet; synchronize it first", argument);
  }
  fail(ISTHMUS_INVALID_ARGUMENT, "event_elapsed: event %s was never recorded; record it first", argument);
}

}  // namespace isthmus::host
