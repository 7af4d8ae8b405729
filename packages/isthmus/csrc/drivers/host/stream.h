// A FIFO queue of tasks with a worker thread, which starts with the first task.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "error.h"
#include "graph.h"

namespace isthmus::host {

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  // delays: wait a random time before each task, to expose races.
  Stream(int32_t device, bool delays);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  int32_t device() const { return device_; }
  // Whether a handle is a stream; catches mistakes, not handles of freed memory.
  bool is_valid() const { return tag_ == kTag; }

  // Appends the task, to the graph if the stream is captured; returns the number to wait for.
  uint64_t submit(Task task);
  // Like submit(), for work that may not be part of a graph: throws Failure if the stream is captured.
  // function is the driver's.
  uint64_t submit_uncaptured(Task task, const char* function);
  // Runs the task in the calling thread if nothing is queued or running and the stream is not captured; else
  // returns false.
  bool run_if_idle(const Task& task);

  bool idle() const noexcept { return done(submitted_.load(std::memory_order_acquire)); }
  // Waits for the task with this number and all before it; ignores their failures.
  void wait(uint64_t number);
  // Waits for all tasks submitted so far; throws the first failure since the last call.
  void synchronize();

  bool capturing() const noexcept { return capturing_.load(std::memory_order_acquire); }
  // The capture that the stream takes part in, or null.
  std::shared_ptr<Capture> capture();
  // Throws Failure if the stream is captured already.
  void begin_capture(std::shared_ptr<Capture> capture);
  void end_capture();
  // Throws Failure if the stream is captured; function is the driver's.
  void require_not_captured(const char* function) const;

  // Accepts no more tasks; queued ones still run.
  void close();
  // Waits for the worker to end; after close().
  void join();

 private:
  static constexpr uint64_t kTag = 0x6973746873747265;

  bool done(uint64_t number) const noexcept { return completed_.load() >= number; }
  uint64_t append(Task task, std::unique_lock<std::mutex>& lock);
  void start_worker();
  void work();
  bool take(std::deque<Task>& tasks);
  void complete();
  void run(const Task& task) noexcept;

  std::atomic<uint64_t> submitted_{0}, completed_{0};
  std::atomic<bool> failed_{false}, capturing_{false};
  std::atomic<int> waiting_{0};  // threads that sleep in wait(); like completed_ sequentially consistent
  std::atomic<uint64_t> tag_{kTag};
  const int32_t device_;
  const bool delays_;
  std::mutex mutex_;  // guards what follows, and writes of submitted_, failed_ and capturing_
  std::condition_variable work_, finished_;
  std::deque<Task> queue_;
  std::optional<Failure> failure_;
  std::shared_ptr<Capture> capture_;
  std::thread worker_;
  bool closing_ = false, sleeps_ = false;  // the worker sleeps
};

}  // namespace isthmus::host
