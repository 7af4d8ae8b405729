// History of allocations, for memory snapshots, leak reports and traces.
//
// When off, it costs one relaxed load per allocation. When on, it keeps the newest max_entries events with
// the Python stacks of their threads, and the stack of every live allocation.
#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace torch {
struct CapturedTraceback;
}

namespace isthmus::memory::history {

enum class Action : uint8_t {
  kAllocate,
  kFreeRequested,
  kFreeCompleted,
  kSegmentAllocate,
  kSegmentFree,
  kSegmentMap,
  kSegmentUnmap,
  kOutOfMemory,
  kSnapshot,
  kStep,
  kUse,  // use by the stream in size
};

using Stack = std::shared_ptr<torch::CapturedTraceback>;

struct Entry {
  Action action;
  c10::DeviceIndex device;
  uintptr_t address;
  int64_t size;  // bytes requested for kOutOfMemory; `address` is then bytes free
  int64_t stream;
  int64_t pool;          // a MemPool's id; 0: the common one
  int64_t microseconds;  // since 1970
  Stack stack;
};

// Events that get a stack.
enum class Context : uint8_t { kNone, kState, kAllocations, kAll };

struct Options {
  bool keep_events = true;  // else only the stacks of live allocations
  Context context = Context::kAll;
  bool cpp_frames = false;
  size_t max_entries = ~size_t{0};
  uint32_t skipped = 0;  // a bit for each Action
};

void start(const Options& options, bool clear);
void stop();  // keeps the recorded events

// Captures this thread's stack; null without an interpreter. Set once, before start()
// (bindings/memory_history.cpp).
using Gather = Stack (*)(bool cpp_frames);

namespace detail {
extern std::atomic<bool> on;
extern Gather gather;
}  // namespace detail
inline bool is_on() noexcept { return detail::on.load(std::memory_order_relaxed); }

// This thread's stack, if such events record one. Call it without a lock: it may wait for the GIL.
Stack stack_for(Action action) noexcept;
// Without a stack, a free gets the stack of its allocation. Never blocks.
void note(Action action, c10::DeviceIndex device, const void* pointer, int64_t size, int64_t stream,
          int64_t pool, Stack stack) noexcept;

// Oldest first.
std::vector<Entry> entries();
// The stack of a live allocation; null if unknown.
Stack stack_of(const void* pointer);

// Called without a lock before an out-of-memory error is thrown, with the device, bytes requested, bytes
// allocated by this process, bytes free.
using Observer = std::function<void(c10::DeviceIndex, int64_t, int64_t, int64_t)>;
void observe_out_of_memory(Observer observer);
void tell_out_of_memory(c10::DeviceIndex device, int64_t asked, int64_t allocated, int64_t free_bytes);

// Held across fork(). Recording is off in the child.
void fork_lock();
void fork_unlock(bool is_child);

}  // namespace isthmus::memory::history
