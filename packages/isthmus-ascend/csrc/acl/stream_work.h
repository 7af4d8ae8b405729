// Work of streams: enqueueing it, also into models, and waiting for it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "stream.h"
#include "work.h"

namespace isthmus::ascend {

// Runs the work on the stream's thread, in order. Throws Failure if the stream does not accept it.
void enqueue_work(const Stream& stream, std::unique_ptr<Work> work);

// Like enqueue_work(), for a caller that holds captures().
void enqueue_held(const Stream& stream, std::unique_ptr<Work> work);

template <typename Task>
void enqueue(const Stream& stream, Task task) {
  enqueue_work(stream, work_of(std::move(task)));
}

// Waits at most so long for the work of all streams of the device. Throws kStreamTimeout.
void wait_for_streams(int32_t device, int32_t milliseconds);

}  // namespace isthmus::ascend
