// Synchronization between the steps of ranks.
#include "drivers/host/collectives/algorithms.h"

namespace isthmus::host {

uint64_t progress_of(const Exchange& exchange, uint64_t steps) noexcept {
  constexpr int kStepBits = 32;
  return exchange.sequence << kStepBits | steps;
}

void post_progress(const Exchange& exchange, uint64_t steps) noexcept {
  exchange.communicator.own().progress.store(progress_of(exchange, steps));
  exchange.communicator.control().ring_all();
}

Wait progress_wait(const Exchange& exchange, int32_t rank, uint64_t steps) noexcept {
  if (steps == 0) return {};
  return {&exchange.communicator.control().seat(rank).progress, progress_of(exchange, steps)};
}

}  // namespace isthmus::host
