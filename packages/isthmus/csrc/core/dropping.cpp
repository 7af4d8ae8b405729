#include "core/dropping.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace isthmus {
namespace {

std::atomic<bool> has_ended{false};
std::atomic<int> in_progress{0};

// Counts a drop unless drops have ended. Both sides write before they read, so one of them sees the other.
bool begin() noexcept {
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { in_progress = 0; });  // the threads are gone
  static_cast<void>(registered);
  ++in_progress;
  if (!has_ended) return true;
  --in_progress;
  return false;
}

}  // namespace

detail::Drop::Drop() noexcept : allowed(begin()) {}

detail::Drop::~Drop() {
  if (allowed) --in_progress;
}

void end_drops() noexcept {
  has_ended = true;
  while (in_progress != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace isthmus
