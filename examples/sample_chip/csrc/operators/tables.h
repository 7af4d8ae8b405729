// The tables that each file contributes to the library.
#pragma once

#include <vector>

#include "isthmus_ops.h"

namespace sample {

const std::vector<isthmus_operator>& pointwise_operators();
const std::vector<isthmus_operator>& comparison_operators();
const std::vector<isthmus_operator>& reduction_operators();
const std::vector<isthmus_operator>& matmul_operators();
const std::vector<isthmus_operator>& normalization_operators();
const std::vector<isthmus_operator>& data_operators();
const std::vector<isthmus_operator>& update_operators();

}  // namespace sample
