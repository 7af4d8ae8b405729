// Arguments with which CPU's kernels of integer division end the process.
#pragma once

#include <string>

#include "dispatch/preparation.h"

namespace isthmus {

// Preparation for operators that divide integers: the smallest integer divided by -1 wraps, as on CUDA,
// instead of trapping. Null for others.
Preparation division_preparation(const std::string& operator_name);

}  // namespace isthmus
