#include "memory/history.h"

#include <torch/csrc/profiler/combined_traceback.h>

#include <chrono>
#include <deque>
#include <mutex>
#include <unordered_map>

namespace isthmus::memory::history {

namespace detail {
std::atomic<bool> on{false};
}

namespace {

struct State {
  std::mutex mutex;
  Options options;
  std::deque<Entry> entries;
  std::unordered_map<uintptr_t, Stack> held;
};

State& state() {
  static State* const instance = new State;  // events may come during static destruction
  return *instance;
}

bool wants_stack(const Options& options, Action action) {
  switch (options.context) {
    case Context::kNone:
      return false;
    case Context::kState:
      return action == Action::kAllocate;
    case Context::kAllocations:
      return action != Action::kFreeRequested && action != Action::kFreeCompleted;
    case Context::kAll:
      return true;
  }
  return false;
}

int64_t now() {
  using namespace std::chrono;
  return duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
}

}  // namespace

void start(const Options& options, bool clear) {
  State& s = state();
  std::lock_guard<std::mutex> guard(s.mutex);
  s.options = options;
  if (clear) {
    s.entries.clear();
    s.held.clear();
  }
  detail::on.store(true);
}

void stop() { detail::on.store(false); }

void note(Action action, c10::DeviceIndex device, const void* pointer, int64_t size,
          int64_t stream) noexcept {
  State& s = state();
  try {
    Options options;
    {
      std::lock_guard<std::mutex> guard(s.mutex);
      options = s.options;
    }
    Stack stack;
    if (wants_stack(options, action)) {
      stack = torch::CapturedTraceback::gather(/*python=*/true, /*script=*/true, options.cpp_frames);
    }
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    Entry entry{action, device, address, size, stream, now(), {}};
    const bool is_kept = options.keep_events && (options.skipped >> static_cast<int>(action) & 1) == 0;
    if (is_kept && options.context != Context::kState) entry.stack = stack;
    Stack dropped;  // freed outside the lock: that may wait for the GIL
    std::vector<Entry> old;
    std::lock_guard<std::mutex> guard(s.mutex);
    if (action == Action::kAllocate) {
      Stack& slot = s.held[address];
      dropped = std::move(slot);
      slot = std::move(stack);
    } else if (action == Action::kFreeCompleted) {
      const auto found = s.held.find(address);
      if (found != s.held.end()) {
        dropped = std::move(found->second);
        s.held.erase(found);
      }
    }
    if (!is_kept) return;
    s.entries.push_back(std::move(entry));
    while (s.entries.size() > options.max_entries) {
      old.push_back(std::move(s.entries.front()));
      s.entries.pop_front();
    }
  } catch (const std::exception&) {
    // Out of host memory: the event is lost, the allocation is not.
  }
}

std::vector<Entry> entries() {
  State& s = state();
  std::lock_guard<std::mutex> guard(s.mutex);
  return {s.entries.begin(), s.entries.end()};
}

Stack stack_of(const void* pointer) {
  State& s = state();
  std::lock_guard<std::mutex> guard(s.mutex);
  const auto found = s.held.find(reinterpret_cast<uintptr_t>(pointer));
  return found == s.held.end() ? nullptr : found->second;
}

}  // namespace isthmus::memory::history
