// Streams: queues of the host chip with what the vendor's interface adds to them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "driver.h"

namespace isthmus::ascend {

struct Stream {
  isthmus_stream queue;
  int32_t device;
  int32_t id;
  uint32_t priority;
  std::atomic<uint32_t> overflow_switch{0};
  std::atomic<uint64_t> subscriber{0};  // thread that runs its callbacks; 0: none
  std::atomic<bool> updates{false};     // its work replaces that of a task group

  Stream(isthmus_stream queue, int32_t device, int32_t id, uint32_t priority = 0)
      : queue(queue), device(device), id(id), priority(priority) {}
  ~Stream();  // destroys the queue, so that it outlives calls of other threads that use it
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
};

// The stream of a handle; of null, the default stream of the calling thread's device. Throws Failure if it
// does not exist or the thread has no context.
std::shared_ptr<Stream> stream_of(const void* handle);

// Work of a stream, which runs once, or at each execution of a model.
struct Work {
  virtual ~Work() = default;
  virtual void run() = 0;
};

// Runs the work on the stream's thread, in order. Throws Failure if the stream does not accept it.
void enqueue_work(const Stream& stream, std::unique_ptr<Work> work);

// Like enqueue_work(), for a caller that holds captures().
void enqueue_held(const Stream& stream, std::unique_ptr<Work> work);

// The driver's queue, for work other than that of enqueue_work(). Throws kUnsupported while the stream
// updates a task group, which consists of the latter.
isthmus_stream queue_of(const Stream& stream);

// All streams of the device, with its default stream.
std::vector<std::shared_ptr<Stream>> streams_of(int32_t device);

// Waits at most so long for the work of all streams of the device. Throws kStreamTimeout.
void wait_for_streams(int32_t device, int32_t milliseconds);

// Work that calls a function without arguments.
template <typename Task>
std::unique_ptr<Work> work_of(Task task) {
  struct Call final : Work {
    explicit Call(Task task) : task(std::move(task)) {}
    void run() override { task(); }
    Task task;
  };
  return std::make_unique<Call>(std::move(task));
}

template <typename Task>
void enqueue(const Stream& stream, Task task) {
  enqueue_work(stream, work_of(std::move(task)));
}

}  // namespace isthmus::ascend
