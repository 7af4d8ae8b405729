// torch.chip.set_sync_debug_mode: warns of operators that make the host wait for the chip, or refuses them.
//
// These are the waits of any chip. That the host chip computes in the calling thread does not count.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <string>

#include "core/capture.h"

namespace isthmus {

enum class SyncDebugMode { kOff, kWarn, kError };

namespace detail {
extern std::atomic<SyncDebugMode> sync_debug_mode;
void tell_of_wait(const std::string& operation);
void tell_of_operator(const std::string& name, const torch::jit::Stack& stack);

inline bool waits_matter() noexcept {
  return C10_UNLIKELY(capturing() || sync_debug_mode.load(std::memory_order_relaxed) != SyncDebugMode::kOff);
}
}  // namespace detail

// Reports that the operation waits. Throws if the current stream is captured.
inline void waits(const char* operation) {
  if (detail::waits_matter()) detail::tell_of_wait(operation);
}

// Whether the shape or the value of a result depends on the data; for indexing, with masks.
bool reads_data(const c10::OperatorHandle& op);

// Reports the call of an operator that reads_data().
inline void waits(const std::string& name, const torch::jit::Stack& stack) {
  if (detail::waits_matter()) detail::tell_of_operator(name, stack);
}

}  // namespace isthmus
