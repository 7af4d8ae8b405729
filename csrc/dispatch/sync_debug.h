// torch.chip.set_sync_debug_mode: tells of operators that make the host wait for the chip, or refuses them.
//
// Told is what waits on any chip, not that the host chip computes in the calling thread.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <string>

namespace isthmus {

enum class SyncDebugMode { kOff, kWarn, kError };

namespace detail {
extern std::atomic<SyncDebugMode> sync_debug_mode;
void tell_of_wait(const std::string& operation);
void tell_of_operator(const std::string& name, const torch::jit::Stack& stack);
}  // namespace detail

// The operation waits.
inline void waits(const char* operation) {
  if (C10_UNLIKELY(detail::sync_debug_mode.load(std::memory_order_relaxed) != SyncDebugMode::kOff))
    detail::tell_of_wait(operation);
}

// Whether the operator's results have a shape or a value that only the data tells; of indexing, with masks.
bool reads_data(const c10::OperatorHandle& op);

// An operator that reads_data() is called.
inline void waits(const std::string& name, const torch::jit::Stack& stack) {
  if (C10_UNLIKELY(detail::sync_debug_mode.load(std::memory_order_relaxed) != SyncDebugMode::kOff))
    detail::tell_of_operator(name, stack);
}

}  // namespace isthmus
