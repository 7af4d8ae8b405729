// Which algorithm an all-reduce takes where nobody forces one.
#include "drivers/host/collectives/algorithms.h"

namespace isthmus::host {

Algorithm choose_algorithm(uint64_t bytes, int32_t ranks) noexcept {
  (void)bytes;
  (void)ranks;
  return Algorithm::kMesh;
}

}  // namespace isthmus::host
