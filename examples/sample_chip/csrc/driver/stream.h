// Streams are queues with a worker thread; events are markers in them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "driver.h"

namespace sample {

// The work captured by one event_record().
class Mark {
 public:
  void reach();
  void wait();
  // Nanoseconds of the monotonic clock at which it was reached, or 0.
  int64_t time();

 private:
  std::mutex mutex_;
  std::condition_variable reached_;
  int64_t time_ = 0;
};

class Stream {
 public:
  // The worker holds the stream until it is closed and all submitted work has run.
  static std::shared_ptr<Stream> start(int32_t device);

  int32_t device() const { return device_; }
  void submit(std::function<void()> task);
  bool idle();
  void wait();
  void close();

 private:
  explicit Stream(int32_t device) : device_(device) {}
  void work();

  const int32_t device_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  uint64_t submitted_ = 0, done_ = 0;
  bool closed_ = false;
};

class Event {
 public:
  explicit Event(uint32_t flags) : timing_((flags & ISTHMUS_EVENT_TIMING) != 0) {}
  void record(Stream& stream);
  // The last record, or null.
  std::shared_ptr<Mark> mark();
  bool timing() const { return timing_; }

 private:
  const bool timing_;
  std::mutex mutex_;
  std::shared_ptr<Mark> mark_;
};

}  // namespace sample
