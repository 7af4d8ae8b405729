#include "core/host_work.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/stream.h"
#include "isthmus_options.h"

namespace isthmus {
namespace {

// A function with the state of the thread that enqueued it.
struct HostWork {
  c10::Stream stream;
  std::function<void()> function;
  at::ThreadLocalState state;
  int threads;
};

struct Failures {
  std::atomic<bool> any{false};
  std::mutex mutex;
  std::vector<std::pair<c10::Stream, std::exception_ptr>> list;
};

Failures& failures() {
  static Failures& instance = *new Failures;
  return instance;
}

// A stream that has failed does nothing more until the failure is thrown.
bool has_failed(c10::Stream stream) {
  Failures& all = failures();
  if (C10_LIKELY(!all.any.load(std::memory_order_acquire))) return false;
  const std::lock_guard<std::mutex> lock(all.mutex);
  return std::any_of(all.list.begin(), all.list.end(),
                     [&](const auto& entry) { return entry.first == stream; });
}

thread_local std::optional<c10::Stream> at_work;

void run_host_work(void* data) {
  const std::unique_ptr<HostWork> work(static_cast<HostWork*>(data));
  run_at_work(work->stream, [&] {
    const at::ThreadLocalStateGuard state(work->state);
    // Sums depend on it, and each thread has its own.
    if (at::get_num_threads() != work->threads) at::set_num_threads(work->threads);
    work->function();
  });
}

template <class Matches>
void throw_first(Matches matches) {
  Failures& all = failures();
  if (C10_LIKELY(!all.any.load(std::memory_order_acquire))) return;
  std::exception_ptr first;
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    auto& list = all.list;
    for (const auto& [stream, failure] : list)
      if (!first && matches(stream)) first = failure;
    std::erase_if(list, [&](const auto& entry) { return matches(entry.first); });
    all.any.store(!list.empty(), std::memory_order_release);
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace

bool asked_for_host_work() {
  static const bool asked = options::read(options::kHostAsync);
  return asked;
}

bool is_asynchronous() {
  return C10_UNLIKELY(asked_for_host_work()) && ISTHMUS_HAS(driver(), stream_host_function);
}

void run_at_work(c10::Stream stream, const std::function<void()>& function) noexcept {
  if (has_failed(stream)) return;
  at_work = stream;
  try {
    function();
  } catch (...) {
    Failures& all = failures();
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.list.emplace_back(stream, std::current_exception());
    all.any.store(true, std::memory_order_release);
  }
  at_work.reset();
}

void enqueue_host_work(c10::Stream stream, std::function<void()> function) {
  auto work = std::make_unique<HostWork>(
      HostWork{stream, std::move(function), at::ThreadLocalState(), at::get_num_threads()});
  check(driver().stream_host_function(stream_handle(stream), &run_host_work, work.get()), "enqueue a kernel");
  static_cast<void>(work.release());
  mark_busy(stream);
}

std::optional<c10::Stream> stream_at_work() noexcept { return at_work; }

void throw_failure_of(c10::Stream stream) {
  throw_first([&](c10::Stream other) { return other == stream; });
}

void throw_failure_of(c10::DeviceIndex device) {
  throw_first([&](c10::Stream other) { return other.device_index() == device; });
}

void finish_host_work() noexcept {
  try {
    if (!driver_initialized() || in_bad_fork() || !is_asynchronous()) return;
    for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
      use_device(device);
      driver().device_synchronize();
    }
  } catch (const std::exception&) {
  }
}

}  // namespace isthmus
