// Cross entropy over the last dimension, one loss for each row.
#include "kernels/cross_entropy.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <tuple>

namespace isthmus::kernels {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

std::tuple<Tensor, Tensor> cross_entropy(const Tensor& given, const Tensor& given_target,
                                         int64_t ignore_index, double label_smoothing, double logit_scale,
                                         double softcap, double lse_square_scale) {
  const Tensor logits = with_dense_rows(given), target = given_target.contiguous();
  const auto wide = logits.options().dtype(at::toOpMathType(logits.scalar_type()));
  Tensor loss = at::empty(target.sizes(), wide), lse = at::empty(target.sizes(), wide);
  const int64_t n = logits.size(-1);
  const Rows starts(logits);
  const int64_t* t = target.const_data_ptr<int64_t>();
  check_targets(t, target.numel(), n, ignore_index);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, logits.scalar_type(), "cross_entropy", [&] {
    using W = Wide<scalar_t>;
    const LossTerms<W> terms(logit_scale, softcap, label_smoothing, lse_square_scale);
    const auto* x = logits.const_data_ptr<scalar_t>();
    W *losses = loss.mutable_data_ptr<W>(), *sums = lse.mutable_data_ptr<W>();
    at::parallel_for(0, row_count(logits), rows_per_task(n), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const bool ignored = t[row] == ignore_index;
        const auto got = row_loss<scalar_t>(x + starts.offset(row), n, ignored ? 0 : t[row], terms);
        losses[row] = ignored ? W(0) : got.loss;
        sums[row] = got.lse;
      }
    });
  });
  return {loss, lse};
}

// The gradient of the logits into grad_logits, which has dense rows and may be the logits.
void gradient_into(const Tensor& grad_logits, const Tensor& logits, const Tensor& given_grad,
                   const OptionalTensor& given_grad_lse, const Tensor& given_target, const Tensor& given_lse,
                   int64_t ignore_index, double label_smoothing, double logit_scale, double softcap,
                   double lse_square_scale) {
  const Tensor target = given_target.contiguous(), lse = given_lse.contiguous();
  const Tensor grad = given_grad.contiguous();
  const Tensor grad_lse = given_grad_lse.has_value() ? given_grad_lse->contiguous() : Tensor();
  const int64_t n = logits.size(-1);
  const Rows from(logits), to(grad_logits);
  const int64_t* t = target.const_data_ptr<int64_t>();
  check_targets(t, target.numel(), n, ignore_index);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, logits.scalar_type(), "cross_entropy", [&] {
    using W = Wide<scalar_t>;
    const LossTerms<W> terms(logit_scale, softcap, label_smoothing, lse_square_scale);
    const auto* x = logits.const_data_ptr<scalar_t>();
    auto* dx = grad_logits.mutable_data_ptr<scalar_t>();
    const W *sums = lse.const_data_ptr<W>(), *g = grad.const_data_ptr<W>();
    const W* g_lse = grad_lse.defined() ? grad_lse.const_data_ptr<W>() : nullptr;
    at::parallel_for(0, row_count(logits), rows_per_task(n), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const bool ignored = t[row] == ignore_index;
        auto* out = dx + to.offset(row);
        if (ignored && g_lse == nullptr)
          std::fill_n(out, n, scalar_t(0));
        else
          row_gradient<scalar_t>(x + from.offset(row), n, ignored ? 0 : t[row], sums[row],
                                 ignored ? W(0) : g[row], g_lse ? g_lse[row] : W(0), terms, out);
      }
    });
  });
}

Tensor cross_entropy_backward(const Tensor& grad, const OptionalTensor& grad_lse, const Tensor& given,
                              const Tensor& target, const Tensor& lse, int64_t ignore_index,
                              double label_smoothing, double logit_scale, double softcap,
                              double lse_square_scale) {
  const Tensor logits = with_dense_rows(given);
  Tensor grad_logits = at::empty(logits.sizes(), logits.options());
  gradient_into(grad_logits, logits, grad, grad_lse, target, lse, ignore_index, label_smoothing, logit_scale,
                softcap, lse_square_scale);
  return grad_logits;
}

void cross_entropy_backward_(Tensor logits, const Tensor& grad, const OptionalTensor& grad_lse,
                             const Tensor& target, const Tensor& lse, int64_t ignore_index,
                             double label_smoothing, double logit_scale, double softcap,
                             double lse_square_scale) {
  const Tensor dense = with_dense_rows(logits);
  gradient_into(dense, dense, grad, grad_lse, target, lse, ignore_index, label_smoothing, logit_scale,
                softcap, lse_square_scale);
  if (!dense.is_same(logits)) logits.copy_(dense);
}

TORCH_LIBRARY_FRAGMENT(isthmus_cpu, m) {
  m.def("cross_entropy", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(cross_entropy)));
  m.def("cross_entropy_backward", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(cross_entropy_backward)));
  m.def(
      "cross_entropy_backward_(Tensor(a!) logits, Tensor grad, Tensor? grad_lse, Tensor target, Tensor lse, "
      "int ignore_index, float label_smoothing, float logit_scale, float softcap, float lse_square_scale) "
      "-> ()",
      torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(cross_entropy_backward_)));
}

}  // namespace
}  // namespace isthmus::kernels
