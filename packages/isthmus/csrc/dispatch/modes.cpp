#include "dispatch/modes.h"

#include <atomic>

#include "isthmus_options.h"

namespace isthmus {
namespace {

std::atomic<bool> strict_mode{options::kStrict.initial};
std::atomic<bool> tracing_mode{options::kTrace.initial};

}  // namespace

void read_modes() {
  set_strict(options::read(options::kStrict));
  set_tracing(options::read(options::kTrace));
}

bool strict() noexcept { return strict_mode.load(std::memory_order_relaxed); }

void set_strict(bool value) noexcept { strict_mode.store(value, std::memory_order_relaxed); }

bool tracing() noexcept { return tracing_mode.load(std::memory_order_relaxed); }

void set_tracing(bool value) noexcept { tracing_mode.store(value, std::memory_order_relaxed); }

}  // namespace isthmus
