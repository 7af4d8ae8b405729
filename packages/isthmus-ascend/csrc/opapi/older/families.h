// Functions and families that only rows of older.table call.
#pragma once

#include <vector>

#include "opapi/program.h"

namespace isthmus::ascend {

const std::vector<NamedFunction>& suppression_functions();

const std::vector<NamedFamily>& older_families();
const std::vector<NamedFamily>& older_convolution_families();
const std::vector<NamedFamily>& selection_families();
const std::vector<NamedFamily>& box_families();
const std::vector<NamedFamily>& overlap_families();
const std::vector<NamedFamily>& suppression_families();
const std::vector<NamedFamily>& rotated_families();
const std::vector<NamedFamily>& region_families();
const std::vector<NamedFamily>& deformable_families();
const std::vector<NamedFamily>& older_recurrent_families();

}  // namespace isthmus::ascend
