// Indices with which CPU's kernels read or write beside their tensors, because they do not check them.
#pragma once

#include <string>

#include "dispatch/preparation.h"

namespace isthmus {

// A preparation that changes nothing, and throws IndexError or RuntimeError for such an index; null for
// operators whose CPU kernels check.
Preparation index_check_of(const std::string& operator_name);

}  // namespace isthmus
