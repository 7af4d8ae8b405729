// What each file contributes to the library.
#pragma once

#include <vector>

#include "isthmus_ops.h"

namespace sample {

const std::vector<isthmus_operator>& pointwise_operators();
const std::vector<isthmus_operator>& reduction_operators();
const std::vector<isthmus_operator>& matmul_operators();
const std::vector<isthmus_operator>& normalization_operators();
const std::vector<isthmus_operator>& data_operators();

}  // namespace sample
