#include "memory/history.h"

#include <chrono>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace isthmus::memory::history {

namespace detail {
std::atomic<bool> on{false};
Gather gather = nullptr;
}  // namespace detail

namespace {

struct State {
  std::mutex mutex;
  Options options;
  std::deque<Entry> entries;
  std::unordered_map<uintptr_t, Stack> held;
  std::vector<Observer> observers;
};

State& state() {
  static State* const instance = new State;  // events may occur during static destruction
  return *instance;
}

bool wants_stack(Context context, Action action) {
  switch (context) {
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

int64_t now_us() {
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

Stack stack_for(Action action) noexcept {
  State& s = state();
  try {
    Context context;
    bool cpp_frames;
    {
      std::lock_guard<std::mutex> guard(s.mutex);
      context = s.options.context;
      cpp_frames = s.options.cpp_frames;
    }
    if (!wants_stack(context, action)) return nullptr;
    return detail::gather != nullptr ? detail::gather(cpp_frames) : nullptr;
  } catch (const std::exception&) {
    return nullptr;  // out of host memory
  }
}

void note(Action action, c10::DeviceIndex device, const void* pointer, int64_t size, int64_t stream,
          int64_t pool, Stack stack) noexcept {
  State& s = state();
  try {
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    Entry entry{action, device, address, size, stream, pool, now_us(), {}};
    Stack dropped;  // freed after the lock is
    std::vector<Entry> old;
    std::lock_guard<std::mutex> guard(s.mutex);
    const bool keeps_stacks = s.options.context > Context::kState;
    if (keeps_stacks) entry.stack = stack;
    if (action == Action::kAllocate) {
      Stack& slot = s.held[address];
      dropped = std::exchange(slot, std::move(stack));
    } else if (action == Action::kFreeCompleted) {
      const auto found = s.held.find(address);
      if (found != s.held.end()) {
        dropped = std::move(found->second);
        s.held.erase(found);
        if (s.options.context == Context::kAll && entry.stack == nullptr) entry.stack = dropped;
      }
    }
    if (!s.options.keep_events || (s.options.skipped >> static_cast<int>(action) & 1) != 0) return;
    s.entries.push_back(std::move(entry));
    while (s.entries.size() > s.options.max_entries) {
      old.push_back(std::move(s.entries.front()));
      s.entries.pop_front();
    }
  } catch (const std::exception&) {
    // Ignored: out of host memory, the event is lost, the allocation is not.
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

void observe_out_of_memory(Observer observer) {
  State& s = state();
  std::lock_guard<std::mutex> guard(s.mutex);
  s.observers.push_back(std::move(observer));
}

void tell_out_of_memory(c10::DeviceIndex device, int64_t asked, int64_t allocated, int64_t free_bytes) {
  State& s = state();
  std::vector<Observer> observers;
  {
    std::lock_guard<std::mutex> guard(s.mutex);
    observers = s.observers;
  }
  for (const Observer& observer : observers) observer(device, asked, allocated, free_bytes);
}

void fork_lock() { state().mutex.lock(); }

void fork_unlock(bool is_child) {
  if (is_child) stop();
  state().mutex.unlock();
}

}  // namespace isthmus::memory::history
