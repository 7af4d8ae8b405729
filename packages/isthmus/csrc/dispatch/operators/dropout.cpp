// Decomposition route: dropout as CPU does it, from the same random numbers. PyTorch's composite would take
// native_dropout for any accelerator, whose rounding differs.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "dispatch/statistics.h"

namespace isthmus {
namespace {

void check_probability(double p) {
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
}

// Real, of complex numbers too, as the CPU draws it since 2.15.
at::Tensor noise_like(const at::Tensor& input, double p) {
  at::Tensor noise = at::empty_like(input, input.options().dtype(c10::toRealValueType(input.scalar_type())));
  noise.bernoulli_(1 - p);
  noise.div_(1 - p);
  return noise;
}

at::Tensor dropout(const at::Tensor& input, double p, bool train) {
  ISTHMUS_COUNT("aten::dropout", Route::kDecomposition);
  check_probability(p);
  if (p == 0 || !train || input.sym_numel() == 0) return input;
  if (p == 1) return input.mul(at::zeros({}, input.options()));
  return input.mul(noise_like(input, p));
}

at::Tensor& dropout_(at::Tensor& input, double p, bool train) {
  ISTHMUS_COUNT("aten::dropout_", Route::kDecomposition);
  check_probability(p);
  if (p == 0 || !train || input.sym_numel() == 0) return input;
  if (p == 1) return input.mul_(at::zeros({}, input.options()));
  return input.mul_(noise_like(input, p));
}

// CPU's kernel draws from CPU's default generator; the same steps on the chip draw from the chip's.
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p,
                                                  std::optional<bool> train) {
  ISTHMUS_COUNT("aten::native_dropout", Route::kDecomposition);
  if (input.numel() == 0) return {input, at::empty_like(input)};
  if (train && !*train) return {input.clone(), at::ones(input.sizes(), input.options().dtype(at::kBool))};
  const double kept = 1 - p;
  at::Tensor mask = at::empty(input.sizes(), input.options().dtype(at::kBool));
  mask.bernoulli_(kept);
  return {input.mul(mask).mul_(kept == 0 ? 0.0 : 1 / kept), mask};
}

// The composite must be replaced above autograd, which differentiates its parts.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("dropout", TORCH_FN(dropout));
  m.impl("dropout_", TORCH_FN(dropout_));
}
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_dropout", TORCH_FN(native_dropout));
  m.impl("dropout", TORCH_FN(dropout));
  m.impl("dropout_", TORCH_FN(dropout_));
}

}  // namespace
}  // namespace isthmus
