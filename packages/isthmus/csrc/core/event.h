// Events of PyTorch's guard interface: an opaque pointer created at the first record.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <memory>
#include <string>

#include "core/runtime.h"

namespace isthmus {

void record_event(void** event, c10::Stream stream, bool timing);
void wait_event(void* event, c10::Stream stream);
bool query_event(void* event);
void synchronize_event(void* event);
void destroy_event(void* event) noexcept;
// Throws if the event was recorded in a capture that lasts: what is not permitted then.
void require_event_not_captured(void* event, const char* what);
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

// An event that a captured stream records or waits for at each replay, rather than as a part of the capture.
class ExternalEvent {
 public:
  explicit ExternalEvent(bool timing) : state_(std::make_shared<State>(timing)) {}

  void record(c10::Stream stream);
  void wait(c10::Stream stream);
  bool query() { return query_event(state_->event); }
  void synchronize() { synchronize_event(state_->event); }
  double elapsed_ms(const ExternalEvent& end) const {
    return isthmus::elapsed_ms(state_->event, end.state_->event);
  }

 private:
  struct State {
    explicit State(bool timing) : timing(timing) {}
    ~State() { destroy_event(event); }
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    const bool timing;
    void* event = nullptr;
  };
  class Record;
  class Wait;

  std::shared_ptr<State> state_;  // shared with the graphs
};

}  // namespace isthmus
