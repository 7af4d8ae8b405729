// Cross entropy of a linear layer's outputs, by groups of rows: the logits of one group are there at a time,
// and are turned into their gradient in place.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <array>
#include <tuple>

#include "kernels/cross_entropy.h"

namespace isthmus::kernels {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// Losses and lse of logits that are contiguous; with a gradient of the losses, the logits' own in their
// place.
template <typename T>
void losses_of(Tensor& logits, const int64_t* target, const Wide<T>* grad, bool wanted, int64_t ignore_index,
               const LossTerms<Wide<T>>& terms, Wide<T>* loss, Wide<T>* lse) {
  using W = Wide<T>;
  const int64_t n = logits.size(1);
  T* x = logits.mutable_data_ptr<T>();
  at::parallel_for(0, logits.size(0), rows_per_task(n), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const bool ignored = target[row] == ignore_index;
      const auto got = row_loss<T>(x + row * n, n, ignored ? 0 : target[row], terms);
      loss[row] = ignored ? W(0) : got.loss;
      lse[row] = got.lse;
      if (wanted && ignored)
        std::fill_n(x + row * n, n, T(0));
      else if (wanted)
        row_gradient<T>(x + row * n, n, target[row], got.lse, grad ? grad[row] : W(1), W(0), terms,
                        x + row * n);
    }
  });
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> linear_cross_entropy(
    const Tensor& hidden, const Tensor& weight, const OptionalTensor& bias, const Tensor& given_target,
    const OptionalTensor& given_grad, int64_t ignore_index, double label_smoothing, double logit_scale,
    double softcap, double lse_square_scale, int64_t chunk_size, std::array<bool, 3> wanted) {
  const Tensor target = given_target.contiguous();
  const Tensor grad = given_grad.has_value() ? given_grad->contiguous() : Tensor();
  const int64_t rows = hidden.size(0), classes = weight.size(0);
  const int64_t chunk = std::clamp<int64_t>(chunk_size, 1, std::max<int64_t>(rows, 1));
  const auto wide = hidden.options().dtype(at::toOpMathType(hidden.scalar_type()));
  Tensor loss = at::empty({rows}, wide), lse = at::empty({rows}, wide);
  Tensor grad_hidden = wanted[0] ? at::empty(hidden.sizes(), hidden.options()) : Tensor();
  Tensor grad_weight = wanted[1] ? at::empty(weight.sizes(), weight.options()) : Tensor();
  Tensor grad_bias = wanted[2] ? at::zeros({classes}, wide) : Tensor();
  if (grad_weight.defined() && rows == 0) grad_weight.zero_();
  const bool any = wanted[0] || wanted[1] || wanted[2];
  const int64_t* t = target.const_data_ptr<int64_t>();
  check_targets(t, rows, classes, ignore_index);
  Tensor buffer = at::empty({chunk, classes}, hidden.options());
  for (int64_t begin = 0; begin < rows; begin += chunk) {
    const int64_t count = std::min(chunk, rows - begin);
    const Tensor part = hidden.narrow(0, begin, count);
    Tensor logits = buffer.narrow(0, 0, count);
    if (bias.has_value())
      at::addmm_out(logits, *bias, part, weight.t());
    else
      at::mm_out(logits, part, weight.t());
    AT_DISPATCH_FLOATING_TYPES_AND2(
        at::kHalf, at::kBFloat16, hidden.scalar_type(), "linear_cross_entropy", [&] {
          using W = Wide<scalar_t>;
          const LossTerms<W> terms(logit_scale, softcap, label_smoothing, lse_square_scale);
          losses_of<scalar_t>(logits, t + begin, grad.defined() ? grad.const_data_ptr<W>() + begin : nullptr,
                              any, ignore_index, terms, loss.mutable_data_ptr<W>() + begin,
                              lse.mutable_data_ptr<W>() + begin);
        });
    if (wanted[0]) {
      Tensor out = grad_hidden.narrow(0, begin, count);
      at::mm_out(out, logits, weight);
    }
    if (wanted[1] && begin == 0)
      at::mm_out(grad_weight, logits.t(), part);
    else if (wanted[1])
      grad_weight.addmm_(logits.t(), part);
    if (wanted[2]) grad_bias.add_(logits.sum(0, false, grad_bias.scalar_type()));
  }
  return {loss, lse, grad_hidden, grad_weight, grad_bias};
}

TORCH_LIBRARY_FRAGMENT(isthmus_cpu, m) {
  m.def("linear_cross_entropy", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(linear_cross_entropy)));
}

}  // namespace
}  // namespace isthmus::kernels
