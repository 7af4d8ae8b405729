// Decomposition route: the parts of batch normalisation that torch.nn.SyncBatchNorm joins over ranks. PyTorch
// has only CUDA kernels for them.
//
// Shapes: input [N, C, ...]; mean, invstd and the sums [C] (one row per rank where they are gathered), in
// float32 for 16-bit inputs. Source: Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for
// computing sample variances" (1979), for the joined variance.
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/var_mean.h>
#include <torch/library.h>

#include <numeric>

#include "dispatch/statistics.h"

namespace isthmus {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

void check_input(const Tensor& input) {
  TORCH_CHECK(input.dim() >= 2, "batch normalisation expects an input of at least 2 dimensions, got ",
              input.dim());
}

// All dimensions but the channels.
std::vector<int64_t> reduced_dimensions(const Tensor& input) {
  check_input(input);
  std::vector<int64_t> dimensions(input.dim() - 1, 0);
  std::iota(dimensions.begin() + 1, dimensions.end(), 2);
  return dimensions;
}

Tensor wide(const Tensor& tensor) { return tensor.to(at::toOpMathType(tensor.scalar_type())); }

// A value per channel, shaped to broadcast over the input.
Tensor per_channel(const Tensor& values, const Tensor& input) {
  std::vector<int64_t> shape(input.dim(), 1);
  shape[1] = values.size(0);
  return values.to(at::toOpMathType(input.scalar_type())).view(shape);
}

std::tuple<Tensor, Tensor> stats(const Tensor& input, double eps) {
  ISTHMUS_COUNT("aten::batch_norm_stats", Route::kDecomposition);
  auto [variance, mean] =
      at::var_mean(wide(input), reduced_dimensions(input), /*correction=*/0, /*keepdim=*/false);
  return {mean, (variance + eps).rsqrt()};
}

Tensor elementwise(const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                   const Tensor& mean, const Tensor& invstd, double) {
  ISTHMUS_COUNT("aten::batch_norm_elemt", Route::kDecomposition);
  check_input(input);
  Tensor output = (wide(input) - per_channel(mean, input)) * per_channel(invstd, input);
  if (weight && weight->defined()) output = output * per_channel(*weight, input);
  if (bias && bias->defined()) output = output + per_channel(*bias, input);
  return output.to(input.scalar_type());
}

Tensor& elementwise_out(const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                        const Tensor& mean, const Tensor& invstd, double eps, Tensor& out) {
  ISTHMUS_COUNT("aten::batch_norm_elemt.out", Route::kDecomposition);
  out.resize_(input.sizes());
  return out.copy_(elementwise(input, weight, bias, mean, invstd, eps));
}

void update_running(const OptionalTensor& running, const Tensor& value, double momentum) {
  if (running && running->defined()) running->lerp_(value.to(running->scalar_type()), momentum);
}

// mean, invstd: [ranks, C]; counts: [ranks], the elements per channel of each.
std::tuple<Tensor, Tensor> gather(const Tensor&, const Tensor& mean, const Tensor& invstd,
                                  const OptionalTensor& running_mean, const OptionalTensor& running_var,
                                  double momentum, double eps, const Tensor& counts) {
  ISTHMUS_COUNT("aten::batch_norm_gather_stats_with_counts", Route::kDecomposition);
  const Tensor n = counts.to(mean.scalar_type()).view({-1, 1});
  const Tensor total = n.sum();
  const Tensor joined = (mean * n).sum(0) / total;
  const Tensor variances = invstd.square().reciprocal() - eps;
  const Tensor squares = ((variances + (mean - joined).square()) * n).sum(0);
  update_running(running_mean, joined, momentum);
  update_running(running_var, squares / (total - 1), momentum);
  return {joined, (squares / total + eps).rsqrt()};
}

std::tuple<Tensor, Tensor> gather_equal(const Tensor& input, const Tensor& mean, const Tensor& invstd,
                                        const OptionalTensor& running_mean, const OptionalTensor& running_var,
                                        double momentum, double eps, int64_t count) {
  ISTHMUS_COUNT("aten::batch_norm_gather_stats", Route::kDecomposition);
  const Tensor counts = at::full({mean.size(0)}, count, mean.options());
  return gather(input, mean, invstd, running_mean, running_var, momentum, eps, counts);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> backward_reduce(const Tensor& grad_out, const Tensor& input,
                                                           const Tensor& mean, const Tensor& invstd,
                                                           const OptionalTensor& weight, bool input_grad,
                                                           bool weight_grad, bool bias_grad) {
  ISTHMUS_COUNT("aten::batch_norm_backward_reduce", Route::kDecomposition);
  const std::vector<int64_t> dimensions = reduced_dimensions(input);
  const Tensor grad = wide(grad_out);
  const Tensor sum = grad.sum(dimensions);
  const Tensor sum_centred = (grad * (wide(input) - per_channel(mean, input))).sum(dimensions);
  const auto dtype = weight && weight->defined() ? weight->scalar_type() : input.scalar_type();
  return {input_grad ? sum : Tensor(), input_grad ? sum_centred : Tensor(),
          weight_grad ? (sum_centred * invstd).to(dtype) : Tensor(), bias_grad ? sum.to(dtype) : Tensor()};
}

// count: elements per channel of each rank; the sums are over all ranks.
Tensor backward_elementwise(const Tensor& grad_out, const Tensor& input, const Tensor& mean,
                            const Tensor& invstd, const OptionalTensor& weight, const Tensor& sum,
                            const Tensor& sum_centred, const Tensor& count) {
  ISTHMUS_COUNT("aten::batch_norm_backward_elemt", Route::kDecomposition);
  check_input(input);
  const Tensor total = count.sum().to(sum.scalar_type());
  const Tensor slope = per_channel(invstd.square() * sum_centred / total, input);
  const Tensor centred = wide(input) - per_channel(mean, input);
  Tensor grad =
      (wide(grad_out) - per_channel(sum / total, input) - centred * slope) * per_channel(invstd, input);
  if (weight && weight->defined()) grad = grad * per_channel(*weight, input);
  return grad.to(input.scalar_type());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("batch_norm_stats", TORCH_FN(stats));
  m.impl("batch_norm_elemt", TORCH_FN(elementwise));
  m.impl("batch_norm_elemt.out", TORCH_FN(elementwise_out));
  m.impl("batch_norm_gather_stats", TORCH_FN(gather_equal));
  m.impl("batch_norm_gather_stats_with_counts", TORCH_FN(gather));
  m.impl("batch_norm_backward_reduce", TORCH_FN(backward_reduce));
  m.impl("batch_norm_backward_elemt", TORCH_FN(backward_elementwise));
}

}  // namespace
}  // namespace isthmus
