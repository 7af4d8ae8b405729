#include "memory/lease.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <string>

namespace isthmus::memory {
namespace {

// Other values are the holder's process id.
constexpr int64_t kReleased = 0, kOffered = -1, kUnknown = -2;

constexpr int64_t kDead = 0, kHidden = -1;

// Start time of the process in kernel ticks, which tells it from a later process with the same id. A
// zombie is dead: its memory is unmapped.
int64_t started_at(int64_t process) {
  if (kill(static_cast<pid_t>(process), 0) != 0 && errno == ESRCH) return kDead;
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  if (!std::getline(file, text)) return kHidden;
  std::istringstream rest(text.substr(text.rfind(')') + 1));  // the name before it may contain anything
  std::string word;
  rest >> word;
  if (word == "Z" || word == "X") return kDead;
  constexpr int kStateField = 3, kStartField = 22;
  for (int field = kStateField; field < kStartField; ++field) rest >> word;
  return std::stoll(word);
}

}  // namespace

void LeaseState::offer() { __atomic_store_n(&words_[0], kOffered, __ATOMIC_RELEASE); }

bool LeaseState::take(bool known_process) {
  const int64_t process = getpid();
  const int64_t since = known_process ? started_at(process) : kHidden;
  if (__atomic_load_n(&words_[0], __ATOMIC_ACQUIRE) != kOffered) return false;
  if (since > 0) __atomic_store_n(&words_[1], since, __ATOMIC_RELAXED);
  int64_t expected = kOffered;
  return __atomic_compare_exchange_n(&words_[0], &expected, since > 0 ? process : kUnknown, false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

void LeaseState::release() { __atomic_store_n(&words_[0], kReleased, __ATOMIC_RELEASE); }

bool LeaseState::is_over() const {
  const int64_t holder = __atomic_load_n(&words_[0], __ATOMIC_ACQUIRE);
  if (holder == kReleased) return true;
  if (holder < 0) return false;
  const int64_t since = started_at(holder);
  return since != kHidden && since != __atomic_load_n(&words_[1], __ATOMIC_RELAXED);
}

}  // namespace isthmus::memory
