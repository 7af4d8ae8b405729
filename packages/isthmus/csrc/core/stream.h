// Streams of the chip. c10::Stream carries (device, id); id 0 is the device's default stream.
#pragma once

#include <c10/core/Stream.h>

#include "core/runtime.h"

namespace isthmus {

c10::Stream default_stream(c10::DeviceIndex device);
c10::Stream current_stream(c10::DeviceIndex device) noexcept;  // current stream of this thread
void set_current_stream(c10::Stream stream);
c10::Stream new_stream(c10::DeviceIndex device, int priority);  // the nearest available priority
c10::Stream stream_from_pool(c10::DeviceIndex device, bool high_priority);
c10::Stream external_stream(void* native, c10::DeviceIndex device);

struct PriorityRange {
  int lowest, highest;  // numbers; highest <= lowest
};
PriorityRange stream_priority_range();
int stream_priority(c10::Stream stream);

// The driver's handle; null for a default stream that has none, whose device is then made current.
isthmus_stream stream_handle(c10::Stream stream);
// PyTorch's id of a stream that the driver names; -1 for one that was not created here.
c10::StreamId stream_id(isthmus_stream handle, c10::DeviceIndex device) noexcept;

// Records that work was enqueued on the stream through the driver, so that drain() waits for it.
void mark_busy(c10::Stream stream) noexcept;

// Waits for enqueued work, if any, before a computation in the calling thread. Cheap when idle.
void drain(c10::Stream stream);

void synchronize_stream(c10::Stream stream);
void synchronize_device(c10::DeviceIndex device);
// Checks the status of a call of the driver that has waited for the stream. The failure of other work that
// the stream has waited for takes precedence.
void check_waited(isthmus_status status, c10::Stream stream, const char* what);
bool query_stream(c10::Stream stream);

// Called when the host has waited for a stream, before its failure is thrown: throws the failure of other
// work that the stream has waited for.
void set_stream_waited(void (*function)(c10::Stream));

}  // namespace isthmus
