// Products of matrices, quantised or not.
#pragma once

#include <ATen/core/Tensor.h>

#include "opapi/program.h"

namespace isthmus::ascend {

// left @ right: exact in float64 where either holds integers or 8-bit floats, else as ATen does.
at::Tensor product(const at::Tensor& left, const at::Tensor& right);

// Scales as floats; those packed in 64 bits by TransQuantParam, unpacked.
at::Tensor scales(const at::Tensor& tensor);

// (sums + int32 bias) * scale * row_scale + float bias, each of them maybe undefined.
at::Tensor dequantised_product(const at::Tensor& sums, const at::Tensor& scale, const at::Tensor& row_scale,
                               const at::Tensor& bias);

// (weight + offset) * scale, by column, or by groups of rows where the scale has a row for each.
at::Tensor dequantised_weight(const at::Tensor& weight, const at::Tensor& scale, const at::Tensor& offset);

// The activation of a name: "", "relu", "gelu" (erf), "gelu_tanh", "fastgelu" or "silu".
at::Tensor activated(const at::Tensor& x, const std::string& name);

// Gives a product; quantised if the output holds 8-bit integers.
void give_product(const Call& call, const char* name, const at::Tensor& value);

}  // namespace isthmus::ascend
