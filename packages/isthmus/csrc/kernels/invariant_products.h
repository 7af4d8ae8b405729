// Products of matrices in the fused kernels: rows have the same bits in every batch where that mode is on.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace isthmus::kernels {

// alpha * (a @ b) + beta * added: a [batch, m, k], b [batch, k, n], added expandable to [batch, m, n].
at::Tensor invariant_products(const at::Tensor& a, const at::Tensor& b,
                              const std::optional<at::Tensor>& added, double beta, double alpha);

// out = a @ b + added, of matrices; added may be undefined.
void multiply_matrices(at::Tensor out, const at::Tensor& a, const at::Tensor& b,
                       const at::Tensor& added = {});

}  // namespace isthmus::kernels
