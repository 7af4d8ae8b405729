// A task that the profiler records. Times are nanoseconds of CLOCK_MONOTONIC_RAW.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "enqueue.h"

namespace isthmus::ascend {

struct Task {
  isthmus_ascend_task_kind kind;
  std::string name, operands;
  int32_t device, stream, thread;
  uint64_t called = 0, returned = 0;        // the call that enqueued it
  uint64_t started = 0, ended = 0;          // on the stream
  std::shared_ptr<const uint64_t> start{};  // set by the stream when it begins
};

}  // namespace isthmus::ascend
