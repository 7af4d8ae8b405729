// Families that only rows of older.table call.
#pragma once

#include <vector>

#include "opapi/program.h"

namespace isthmus::ascend {

const std::vector<NamedFamily>& older_families();
const std::vector<NamedFamily>& older_convolution_families();
const std::vector<NamedFamily>& older_recurrent_families();

}  // namespace isthmus::ascend
