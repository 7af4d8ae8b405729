// Streams: queues of the host chip with what the vendor's interface adds to them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "driver.h"
#include "failures.h"

namespace isthmus::ascend {

struct Stream {
  isthmus_stream queue;
  int32_t device;
  int32_t id;
  uint32_t priority;
  std::atomic<uint32_t> overflow_switch{0};
  std::atomic<uint64_t> subscriber{0};  // thread that runs its callbacks; 0: none
  std::atomic<bool> updates{false};     // its work replaces that of a task group
  const std::shared_ptr<StreamStatus> status;

  Stream(isthmus_stream queue, int32_t device, int32_t id, uint32_t priority = 0)
      : queue(queue),
        device(device),
        id(id),
        priority(priority),
        status(std::make_shared<StreamStatus>(device)) {}
  ~Stream();  // destroys the queue, so that it outlives calls of other threads that use it
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
};

// The stream of a handle; of null, the default stream of the calling thread's device. Throws Failure if it
// does not exist or the thread has no context.
std::shared_ptr<Stream> stream_of(const void* handle);

// The driver's queue, for work other than that of enqueue_work(). Throws kUnsupported while the stream
// updates a task group, which consists of the latter.
isthmus_stream queue_of(const Stream& stream);

// The stream of a handle that ends. Throws Failure if it does not exist.
std::shared_ptr<Stream> remove_stream(const void* handle);

// All streams of the device, with its default stream.
std::vector<std::shared_ptr<Stream>> streams_of(int32_t device);

}  // namespace isthmus::ascend
