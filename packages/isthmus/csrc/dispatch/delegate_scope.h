// The delegate route's scope: the calling thread computes on the chip's memory in place of the chip.
#pragma once

#include "core/capture.h"
#include "core/profiler.h"
#include "core/stream.h"
#include "memory/memory.h"
#include "memory/tape.h"

namespace isthmus {

// Waits for the stream, then records a kernel of the given name in the profile and serves the thread's CPU
// allocations from the chip's pool, until the end of the scope. tape: notes the allocations of a call that is
// recorded; others are refused while their stream is captured.
class DelegateScope {
 public:
  DelegateScope(const char* name, c10::Stream stream, memory::Tape* tape = nullptr)
      : drained_(name, stream, tape != nullptr),
        work_(profiler::Kind::kKernel, name, stream),
        pool_(stream),
        tape_(tape, memory::TapeScope::Mode::kNote) {}

 private:
  struct Drained {
    Drained(const char* name, c10::Stream stream, bool recorded) {
      if (C10_UNLIKELY(capturing()) && !recorded) require_not_captured(stream, name);
      drain(stream);
    }
  };

  const Drained drained_;
  const profiler::Work work_;
  const memory::PoolScope pool_;
  const memory::TapeScope tape_;
};

}  // namespace isthmus
