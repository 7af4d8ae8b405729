// An event of the vendor and whether it was recorded, which AscendCL does not say.
#pragma once

#include <atomic>

#include "driver.h"
#include "runtime.h"

namespace isthmus::npu {

struct Event {
  void* native = nullptr;
  bool timed = false, shared = false;
  std::atomic<bool> recorded{false};
};

inline Event& event_of(isthmus_event handle) {
  require(handle != nullptr, "the event is null");
  return *reinterpret_cast<Event*>(handle);
}

}  // namespace isthmus::npu
