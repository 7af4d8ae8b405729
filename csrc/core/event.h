// Events of PyTorch's guard interface: an opaque pointer created at the first record.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <string>

#include "core/runtime.h"

namespace isthmus {

void record_event(void** event, c10::Stream stream, bool timing);
void wait_event(void* event, c10::Stream stream);
bool query_event(void* event);
void synchronize_event(void* event);
void destroy_event(void* event) noexcept;
double elapsed_ms(void* start, void* end);  // both recorded with timing and done

// An event that other processes can wait for and record. The driver's event is made at the first record() or
// ipc_handle(). Throws if the driver cannot share events.
class SharedEvent {
 public:
  SharedEvent() = default;
  SharedEvent(c10::DeviceIndex device, const std::string& ipc_handle);  // another process's
  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  void record(c10::Stream stream);
  void wait(c10::Stream stream);
  bool query();
  void synchronize();
  std::string ipc_handle();

  c10::DeviceIndex device() const { return device_; }  // -1 until the event is made
  isthmus_event native() const { return event_; }

 private:
  void make(c10::DeviceIndex device);

  isthmus_event event_ = nullptr;
  c10::DeviceIndex device_ = -1;
};

}  // namespace isthmus
