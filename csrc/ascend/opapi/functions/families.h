// The functions that rows may call beside ATen's operators, one file per family.
#pragma once

#include <ATen/core/Tensor.h>

#include "ascend/opapi/program.h"

namespace isthmus::ascend {

const std::vector<NamedFunction>& value_functions();
const std::vector<NamedFunction>& indexing_functions();
const std::vector<NamedFunction>& activation_functions();
const std::vector<NamedFunction>& training_functions();
const std::vector<NamedFunction>& attention_functions();
const std::vector<NamedFunction>& rotary_functions();

// The bits of a dropout mask, the lowest of each byte first, as booleans of a shape.
at::Tensor unpacked_bits(const at::Tensor& mask, at::IntArrayRef sizes);

}  // namespace isthmus::ascend
