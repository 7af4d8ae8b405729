// Quantized tensors on the chip: integers with a quantizer, which for channels has tensors of its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace isthmus {

using PartMap = std::function<at::Tensor(const at::Tensor& part)>;

// The quantized tensor over other parts, on their device: the bytes of its storage, scales and zero points.
at::Tensor quantized_with_parts(const at::Tensor& tensor, const PartMap& map);

// Gives a quantized tensor the quantizer of another, with other parts, and its geometry.
void assign_quantized(const at::Tensor& to, const at::Tensor& from, const PartMap& map);

}  // namespace isthmus
