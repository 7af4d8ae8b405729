// The addresses that one call allocates: noted while the call is captured, handed out again at each replay.
#pragma once

#include <c10/util/SmallVector.h>

#include "memory/memory.h"

namespace isthmus::memory {

// Calls that allocate otherwise than when they were captured (a workspace whose size depends on the data)
// get other memory from the first difference on.
class Tape {
 public:
  void note(void* pointer, size_t bytes) { entries_.push_back({pointer, bytes}); }
  // Memory that an argument got in the captured call, and has in a replay without allocating it.
  void forget(const void* pointer) noexcept {
    for (auto entry = entries_.end(); entry != entries_.begin();)
      if ((--entry)->pointer == pointer) {
        entries_.erase(entry);
        return;
      }
  }
  void rewind() noexcept { next_ = 0; }
  // Null from the first allocation on that had another size in the captured call.
  void* take(size_t bytes) noexcept {
    if (next_ < entries_.size() && entries_[next_].bytes == bytes) return entries_[next_++].pointer;
    next_ = entries_.size();
    return nullptr;
  }

 private:
  struct Entry {
    void* pointer;
    size_t bytes;
  };
  c10::SmallVector<Entry, 2> entries_;
  size_t next_ = 0;
};

// During its lifetime the innermost PoolScope of this thread notes its allocations on the tape, or takes
// them from it. Null: neither.
class TapeScope {
 public:
  enum class Mode { kNote, kTake };

  TapeScope(Tape* tape, Mode mode) noexcept : outer_(detail::scope) {
    (mode == Mode::kNote ? detail::scope.noted : detail::scope.taken) = tape;
  }
  ~TapeScope() { detail::scope = outer_; }
  TapeScope(const TapeScope&) = delete;
  TapeScope& operator=(const TapeScope&) = delete;

 private:
  const detail::Scope outer_;
};

}  // namespace isthmus::memory
