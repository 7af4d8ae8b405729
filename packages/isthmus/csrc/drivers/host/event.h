// Events: points in a stream that others can wait for.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

namespace isthmus::host {

class Capture;
class SharedEvent;
class Stream;

// Unfinished work captured by an event.
class Awaited {
 public:
  virtual ~Awaited() = default;
  // The stream of the work; null if another process recorded it.
  virtual const Stream* stream() const = 0;
  virtual void wait() = 0;
};

// One recording of an event. Waiting streams hold a reference, so the event may be recorded again or
// destroyed.
class Record final : public Awaited {
 public:
  explicit Record(const Stream* stream) : stream_(stream) {}

  const Stream* stream() const override { return stream_; }
  bool done() const noexcept { return time_ns_.load(std::memory_order_acquire) != 0; }
  int64_t time_ns() const noexcept { return time_ns_.load(std::memory_order_acquire); }
  void complete();
  void wait() override;

 private:
  const Stream* const stream_;
  std::atomic<int64_t> time_ns_{0};  // CLOCK_MONOTONIC; 0 until done
  std::mutex mutex_;
  std::condition_variable completed_;
};

class Event {
 public:
  explicit Event(uint32_t flags);
  explicit Event(std::shared_ptr<SharedEvent> shared);

  void record(Stream& stream);
  // The work captured by the last record(); null if it is done or nothing was recorded. Throws Failure if it
  // is part of a graph that is being captured.
  std::shared_ptr<Awaited> pending();
  // Whether the stream's wait is part of a capture, to which it belongs then.
  bool wait_in_capture(Stream& stream);
  // Null unless the event is shared.
  SharedEvent* shared() const { return shared_.get(); }
  void require_timing(const char* argument) const;
  // Completion time of the captured work. Throws Failure if it is not done or nothing was recorded.
  int64_t time_ns(const char* argument);

 private:
  void record_shared(Stream& stream);

  const uint32_t flags_;
  const std::shared_ptr<SharedEvent> shared_;
  std::mutex mutex_;  // guards what follows
  std::shared_ptr<Record> record_;
  std::weak_ptr<Capture> capture_;  // capture of the last record()
  size_t mark_ = 0;                 // mark of the record in the capture
  int64_t time_ns_ = 0;             // time of a record that completed immediately and needs no Record
};

}  // namespace isthmus::host
