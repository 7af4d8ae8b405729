// The delegate route's scope: the calling thread computes on the chip's memory in place of the chip.
#pragma once

#include "core/profiler.h"
#include "core/stream.h"
#include "memory/memory.h"

namespace isthmus {

// Waits for the stream, then records a kernel of the given name in the profile and serves the thread's CPU
// allocations from the chip's pool, until the end of the scope.
class DelegateScope {
 public:
  DelegateScope(const char* name, c10::Stream stream)
      : drained_(stream), work_(profiler::Kind::kKernel, name, stream), pool_(stream) {}

 private:
  struct Drained {
    explicit Drained(c10::Stream stream) { drain(stream); }
  };

  const Drained drained_;
  const profiler::Work work_;
  const memory::PoolScope pool_;
};

}  // namespace isthmus
