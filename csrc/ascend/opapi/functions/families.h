// The functions that rows may call beside ATen's operators, one file per family.
#pragma once

#include "ascend/opapi/program.h"

namespace isthmus::ascend {

const std::vector<NamedFunction>& value_functions();
const std::vector<NamedFunction>& indexing_functions();
const std::vector<NamedFunction>& activation_functions();
const std::vector<NamedFunction>& training_functions();
const std::vector<NamedFunction>& attention_functions();

}  // namespace isthmus::ascend
