// The product name of the devices.
#pragma once

#include <cstdint>

namespace isthmus::ascend {

// Number of cores. kind: 0 cube, 1 vector. Throws kInvalidParameter for others.
int64_t cores(int kind);

}  // namespace isthmus::ascend
