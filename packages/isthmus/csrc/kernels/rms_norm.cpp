// RMSNorm over the last dimension, with and without the residual added first. A row is read twice, the second
// time from the cache, while the next one is prefetched.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <cmath>
#include <tuple>
#include <utility>

#include "kernels/streaming.h"

namespace isthmus::kernels {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

at::ScalarType wide_type(const Tensor& tensor) { return at::toOpMathType(tensor.scalar_type()); }

// The weight in the type that is computed in, so that one kernel serves every mix of dtypes.
Tensor wide_weight(const OptionalTensor& weight, const Tensor& input) {
  if (!weight.has_value()) return {};
  return weight->contiguous().to(wide_type(input));
}

Tensor row_statistics(const Tensor& input) {
  auto shape = input.sizes().vec();
  shape.back() = 1;
  return at::empty(shape, input.options().dtype(wide_type(input)));
}

// Whether rows of n go past the caches; if the first is aligned, so are all.
bool is_streamed(const Tensor& result, int64_t n) {
  return static_cast<int64_t>(result.nbytes()) >= kStreamedBytes &&
         n * result.itemsize() % kStreamAlignment == 0;
}

// out = (input + residual) * rstd * weight, of the sum before it is rounded to T and kept.
template <typename T, bool kStream>
void forward_row(const T* input, const T* residual, const Wide<T>* weight, T* sum, T* out, Wide<T>* rstd,
                 int64_t n, double eps) {
  using P = Piece<T>;
  using V = typename P::Vector;
  const auto value = [&](int64_t i, int64_t count) {
    const P x = P::load(input + i, count);
    if (residual == nullptr) return x;
    const P r = P::load(residual + i, count);
    return P{x.low + r.low, x.high + r.high};
  };
  const Wide<T> squares = dot<T>(n, [&](int64_t i, int64_t count) {
    const P x = value(i, count);
    return std::pair(x, x);
  });
  *rstd = Wide<T>(1) / std::sqrt(squares / static_cast<Wide<T>>(n) + static_cast<Wide<T>>(eps));
  const V factor(*rstd);
  const int64_t ahead = next_row<T>(n);
  for_pieces<T>(n, [&](int64_t i, int64_t count) {
    const P x = value(i, count);
    prefetch(input + ahead + i);
    if (residual != nullptr) prefetch(residual + ahead + i);
    if (sum != nullptr) put<kStream>(x, sum + i, count);
    P y{x.low * factor, x.high * factor};
    if (weight != nullptr) {
      const auto w = Piece<Wide<T>>::load(weight + i, count);
      y = {y.low * w.low, y.high * w.high};
    }
    put<kStream>(y, out + i, count);
  });
}

std::tuple<Tensor, Tensor, Tensor> forward(const Tensor& given, const OptionalTensor& residual,
                                           const OptionalTensor& weight, double eps) {
  TORCH_CHECK_VALUE(given.dim() > 0, "rms_norm: the input needs a dimension to normalize");
  const Tensor input = given.contiguous();
  const Tensor other = residual.has_value() ? residual->contiguous() : Tensor();
  const Tensor factor = wide_weight(weight, input);
  Tensor out = at::empty_like(input), rstd = row_statistics(input);
  Tensor sum = other.defined() ? at::empty_like(input) : Tensor();
  const int64_t n = input.size(-1), rows = n == 0 ? 0 : input.numel() / n;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, input.scalar_type(), "rms_norm", [&] {
    using W = Wide<scalar_t>;
    const auto* x = input.const_data_ptr<scalar_t>();
    const auto* r = other.defined() ? other.const_data_ptr<scalar_t>() : nullptr;
    const W* w = factor.defined() ? factor.const_data_ptr<W>() : nullptr;
    auto* s = sum.defined() ? sum.mutable_data_ptr<scalar_t>() : nullptr;
    auto* y = out.mutable_data_ptr<scalar_t>();
    W* scale = rstd.mutable_data_ptr<W>();
    const bool streams = is_streamed(out, n) && is_aligned(y) && is_aligned(s);
    const auto run = streams ? forward_row<scalar_t, true> : forward_row<scalar_t, false>;
    at::parallel_for(0, rows, rows_per_task(n), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        run(x + row * n, r ? r + row * n : nullptr, w, s ? s + row * n : nullptr, y + row * n, scale + row, n,
            eps);
      if (streams) end_of_stream();
    });
  });
  return {out, sum, rstd};
}

std::tuple<Tensor, Tensor> rms_norm(const Tensor& input, const OptionalTensor& weight, double eps) {
  auto [out, sum, rstd] = forward(input, std::nullopt, weight, eps);
  return {out, rstd};
}

std::tuple<Tensor, Tensor, Tensor> add_rms_norm(const Tensor& input, const Tensor& residual,
                                                const OptionalTensor& weight, double eps) {
  return forward(input, residual, weight, eps);
}

// With hat = x * rstd and g = grad * weight: dx = rstd * (g - hat * mean(g * hat)) + grad_sum; dweight +=
// grad * hat.
template <typename T, bool kStream>
void backward_row(const T* grad, const T* grad_sum, const T* input, const Wide<T>* weight, Wide<T> rstd,
                  T* grad_input, Wide<T>* grad_weight, int64_t n) {
  using P = Piece<T>;
  using V = typename P::Vector;
  using WidePiece = Piece<Wide<T>>;
  const auto slope = [&](int64_t i, int64_t count) {
    P g = P::load(grad + i, count);
    if (weight != nullptr) {
      const auto w = WidePiece::load(weight + i, count);
      g = {g.low * w.low, g.high * w.high};
    }
    return g;
  };
  const Wide<T> product = dot<T>(
      n, [&](int64_t i, int64_t count) { return std::pair(slope(i, count), P::load(input + i, count)); });
  const V scale(rstd), mean(product * rstd / static_cast<Wide<T>>(n));
  const int64_t ahead = next_row<T>(n);
  for_pieces<T>(n, [&](int64_t i, int64_t count) {
    const P x = P::load(input + i, count), g = slope(i, count);
    prefetch(input + ahead + i);
    prefetch(grad + ahead + i);
    if (grad_sum != nullptr) prefetch(grad_sum + ahead + i);
    const V hat_low = x.low * scale, hat_high = x.high * scale;
    P dx{(g.low - hat_low * mean) * scale, (g.high - hat_high * mean) * scale};
    if (grad_sum != nullptr) {
      const P s = P::load(grad_sum + i, count);
      dx = {dx.low + s.low, dx.high + s.high};
    }
    put<kStream>(dx, grad_input + i, count);
    if (grad_weight != nullptr) {
      const P plain = P::load(grad + i, count);
      const auto w = WidePiece::load(grad_weight + i, count);
      WidePiece{at::vec::fmadd(plain.low, hat_low, w.low), at::vec::fmadd(plain.high, hat_high, w.high)}
          .store(grad_weight + i, count);
    }
  });
}

std::tuple<Tensor, Tensor> rms_norm_backward(const Tensor& given_grad, const OptionalTensor& given_grad_sum,
                                             const Tensor& given_input, const OptionalTensor& weight,
                                             const Tensor& rstd) {
  const Tensor input = given_input.contiguous(), grad = given_grad.contiguous();
  const Tensor scales = rstd.contiguous();
  const Tensor grad_sum = given_grad_sum.has_value() ? given_grad_sum->contiguous() : Tensor();
  const Tensor factor = wide_weight(weight, input);
  Tensor grad_input = at::empty_like(input);
  const int64_t n = input.size(-1), rows = n == 0 ? 0 : input.numel() / n;
  const int64_t tasks = summing_tasks(rows, n);
  // One row of sums for each task: the result depends on the shape and the number of threads alone.
  Tensor sums = factor.defined() ? at::zeros({tasks, n}, factor.options()) : Tensor();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, input.scalar_type(), "rms_norm_backward", [&] {
    using W = Wide<scalar_t>;
    const auto* g = grad.const_data_ptr<scalar_t>();
    const auto* s = grad_sum.defined() ? grad_sum.const_data_ptr<scalar_t>() : nullptr;
    const auto* x = input.const_data_ptr<scalar_t>();
    const W* w = factor.defined() ? factor.const_data_ptr<W>() : nullptr;
    const W* scale = scales.const_data_ptr<W>();
    auto* dx = grad_input.mutable_data_ptr<scalar_t>();
    W* dw = sums.defined() ? sums.mutable_data_ptr<W>() : nullptr;
    const bool streams = is_streamed(grad_input, n) && is_aligned(dx);
    const auto run = streams ? backward_row<scalar_t, true> : backward_row<scalar_t, false>;
    at::parallel_for(0, tasks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task)
        for (int64_t row = rows * task / tasks; row < rows * (task + 1) / tasks; ++row)
          run(g + row * n, s ? s + row * n : nullptr, x + row * n, w, scale[row], dx + row * n,
              dw ? dw + task * n : nullptr, n);
      if (streams) end_of_stream();
    });
  });
  return {grad_input, sums.defined() ? sums.sum(0) : Tensor()};
}

TORCH_LIBRARY_FRAGMENT(isthmus_cpu, m) {
  m.def("rms_norm", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(rms_norm)));
  m.def("add_rms_norm", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(add_rms_norm)));
  m.def("rms_norm_backward", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(rms_norm_backward)));
}

}  // namespace
}  // namespace isthmus::kernels
