// Activity records: work of streams with its times, while recording is on. When off, a span costs one
// relaxed load.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "driver.h"

namespace isthmus::host {

class Stream;

namespace activity {

namespace detail {
extern std::atomic<bool> recording;
}

inline bool recording() noexcept { return detail::recording.load(std::memory_order_relaxed); }

// Correlation last set by activity_push_correlation() on this thread.
uint64_t correlation() noexcept;

// Records the time from its construction to its end. name must be a literal.
class Span {
 public:
  Span(isthmus_activity_kind kind, const char* name, const Stream& stream, uint64_t bytes,
       uint64_t correlation);
  ~Span();
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  isthmus_activity record_{};
};

// Wraps work in a span, for a stream that runs it later. Call it on the thread that enqueues the work.
template <typename Work>
auto record_around(isthmus_activity_kind kind, const char* name, const Stream& stream, uint64_t bytes,
                   Work work) {
  return [=, &stream, correlation = correlation()] {
    if (__builtin_expect(!recording(), 1)) return work();
    const Span span(kind, name, stream, bytes, correlation);
    work();
  };
}

}  // namespace activity
}  // namespace isthmus::host
