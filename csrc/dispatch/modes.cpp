#include "dispatch/modes.h"

#include <atomic>
#include <cstdlib>
#include <string>

namespace isthmus {
namespace {

bool switched_on(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && std::string(value) == "1";
}

std::atomic<bool>& strict_mode() {
  static std::atomic<bool> mode{switched_on("ISTHMUS_STRICT")};
  return mode;
}

std::atomic<bool>& tracing_mode() {
  static std::atomic<bool> mode{switched_on("ISTHMUS_TRACE")};
  return mode;
}

}  // namespace

bool strict() noexcept { return strict_mode().load(std::memory_order_relaxed); }

void set_strict(bool value) noexcept { strict_mode().store(value, std::memory_order_relaxed); }

bool tracing() noexcept { return tracing_mode().load(std::memory_order_relaxed); }

void set_tracing(bool value) noexcept { tracing_mode().store(value, std::memory_order_relaxed); }

}  // namespace isthmus
