#include "dispatch/modes.h"

#include <atomic>

#include "isthmus_options.h"

namespace isthmus {
namespace {

std::atomic<bool> strict_mode{options::kStrict.initial};
std::atomic<bool> tracing_mode{options::kTrace.initial};
std::atomic<bool> batch_invariant_mode{options::kBatchInvariant.initial};

}  // namespace

void read_modes() {
  set_strict(options::read(options::kStrict));
  set_tracing(options::read(options::kTrace));
  set_batch_invariant(options::read(options::kBatchInvariant));
}

bool strict() noexcept { return strict_mode.load(std::memory_order_relaxed); }

void set_strict(bool value) noexcept { strict_mode.store(value, std::memory_order_relaxed); }

bool tracing() noexcept { return tracing_mode.load(std::memory_order_relaxed); }

void set_tracing(bool value) noexcept { tracing_mode.store(value, std::memory_order_relaxed); }

bool batch_invariant() noexcept { return batch_invariant_mode.load(std::memory_order_relaxed); }

void set_batch_invariant(bool on) noexcept { batch_invariant_mode.store(on, std::memory_order_relaxed); }

}  // namespace isthmus
