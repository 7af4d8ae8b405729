// Work of the host on a stream, which runs when the stream's earlier work is done.
//
// With ISTHMUS_HOST_ASYNC=1 kernels that would run in the calling thread become such work: they run later, as
// those of a real chip do, so that every place which takes a launched kernel for a finished one shows itself.
#pragma once

#include <c10/core/Stream.h>

#include <functional>
#include <optional>

#include "core/runtime.h"

namespace isthmus {

// ISTHMUS_HOST_ASYNC.
bool asked_for_host_work();
// Whether kernels of the host run later: asked for, and the driver can. The driver is initialised.
bool is_asynchronous();

// Calls a function that is work of the stream, in the thread that runs the stream's work; does nothing if
// earlier work has failed. What it throws, the next wait for the stream or its device throws.
void run_at_work(c10::Stream stream, const std::function<void()>& function) noexcept;

// Enqueues a function, for run_at_work().
void enqueue_host_work(c10::Stream stream, std::function<void()> function);

// The stream whose enqueued function this thread runs.
std::optional<c10::Stream> stream_at_work() noexcept;

// Calls a function that waits in the driver. Enqueued functions may need Python's lock.
template <class Wait>
auto wait_for_host_work(Wait wait) {
  if (C10_LIKELY(!is_asynchronous())) return wait();
  decltype(wait()) result;
  without_gil([&] { result = wait(); });
  return result;
}

// Throws the first failure of enqueued functions of the stream, or of the device.
void throw_failure_of(c10::Stream stream);
void throw_failure_of(c10::DeviceIndex device);

// Waits for all enqueued functions; the interpreter is about to end.
void finish_host_work() noexcept;

}  // namespace isthmus
