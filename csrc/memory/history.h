// Who allocated what, and when: what memory snapshots, leak reports and traces are made of.
//
// Off, it costs one relaxed load for each allocation. On, each event is kept with the Python stack of its
// thread, the newest so many of them, and the stack of every allocation that is held.
#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>
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
  kUse,  // by the stream in size
};

using Stack = std::shared_ptr<torch::CapturedTraceback>;

struct Entry {
  Action action;
  c10::DeviceIndex device;
  uintptr_t address;
  int64_t size;  // of kOutOfMemory: what was asked; `address` is then what was free
  int64_t stream;
  int64_t microseconds;  // since 1970
  Stack stack;
};

// Which events get a stack.
enum class Context : uint8_t { kNone, kState, kAllocations, kAll };

struct Options {
  bool keep_events = true;  // else only the stacks of what is held
  Context context = Context::kAll;
  bool cpp_frames = false;
  size_t max_entries = ~size_t{0};
  uint32_t skipped = 0;  // a bit for each Action
};

void start(const Options& options, bool clear);
void stop();  // keeps what was recorded

namespace detail {
extern std::atomic<bool> on;
}
inline bool is_on() noexcept { return detail::on.load(std::memory_order_relaxed); }

// Never throws. Not under a lock: it may wait for the GIL.
void note(Action action, c10::DeviceIndex device, const void* pointer, int64_t size, int64_t stream) noexcept;

// From the oldest on.
std::vector<Entry> entries();
// Of an allocation that is held; null if it is not known.
Stack stack_of(const void* pointer);

}  // namespace isthmus::memory::history
