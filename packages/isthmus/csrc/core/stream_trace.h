// Reports operations on streams and events to one listener, the stream-order checker.
//
// Only operations of the program are reported, through the guard or torch.chip, not the core's own: they
// order streams on this chip, but may not on another.
#pragma once

#include <c10/core/Stream.h>

#include <atomic>
#include <cstdint>
#include <functional>

namespace isthmus {

enum class StreamAction {
  kRecord,      // what: event; on stream
  kWait,        // what: event; stream waits
  kEventDone,   // what: event; the host has seen it done
  kStreamDone,  // the host has seen the stream idle
  kDeviceDone,  // the host has seen all streams of stream's device idle
  kMemoryUsed,  // what: address; its memory is reused only after the stream's work so far
};

using StreamListener = std::function<void(StreamAction, uintptr_t what, c10::Stream stream)>;

// An empty listener ends it. Called on the thread that acts, with no lock held.
void listen_to_streams(StreamListener listener);

namespace detail {
extern std::atomic<bool> stream_listener_present;
void tell_streams(StreamAction action, uintptr_t what, c10::Stream stream);
}  // namespace detail

inline void tell(StreamAction action, const void* what, c10::Stream stream) {
  if (C10_UNLIKELY(detail::stream_listener_present.load(std::memory_order_relaxed)))
    detail::tell_streams(action, reinterpret_cast<uintptr_t>(what), stream);
}

}  // namespace isthmus
