// Whether the fused kernels compute each row alike whatever the batch, as torch.chip.set_batch_invariant()
// asks.
#pragma once

#include <atomic>

#include "isthmus_options.h"

namespace isthmus::kernels {

inline std::atomic<bool> batch_invariant{options::read(options::kBatchInvariant)};

}  // namespace isthmus::kernels
