// Dropout of a scaled input, the addition of the residual, and the sum's LayerNorm or RMSNorm.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <cmath>
#include <tuple>

#include "kernels/rows.h"
#include "kernels/streaming.h"

namespace isthmus::kernels {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

at::ScalarType wide_type(const Tensor& tensor) { return at::toOpMathType(tensor.scalar_type()); }

Tensor empty_of_type(const Tensor& tensor, at::ScalarType type) {
  return at::empty(tensor.sizes(), tensor.options().dtype(type));
}

Tensor contiguous_or_none(const OptionalTensor& tensor) {
  return tensor.has_value() ? tensor->contiguous() : Tensor();
}

Tensor wide_or_none(const OptionalTensor& tensor, at::ScalarType type) {
  return tensor.has_value() ? tensor->contiguous().to(type) : Tensor();
}

template <typename T>
const T* data(const Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<T>() : nullptr;
}

template <typename T>
T* mutable_data(const Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr<T>() : nullptr;
}

template <typename T>
T* row_of(T* base, int64_t row, int64_t n) {
  return base == nullptr ? nullptr : base + row * n;
}

// The input's factor, apart from the mask: of the row and 1 / (1 - p).
template <typename W>
W row_factor(const W* rowscale, int64_t row, double p) {
  const W kept = static_cast<W>(p < 1 ? 1 / (1 - p) : 0);
  return rowscale == nullptr ? kept : kept * rowscale[row];
}

// The elements of a piece that the mask keeps.
template <typename W>
Piece<W> masked(const Piece<W>& x, const bool* mask, int64_t count) {
  if (mask == nullptr) return x;
  W values[Piece<W>::kSize];
  x.store(values);
  for (int64_t j = 0; j < count; ++j) values[j] = mask[j] ? values[j] : W(0);
  return Piece<W>::load(values);
}

template <typename W>
Piece<W> times(const Piece<W>& x, const W* factors, int64_t count) {
  if (factors == nullptr) return x;
  const auto f = Piece<W>::load(factors, count);
  return {x.low * f.low, x.high * f.high};
}

template <typename W>
struct Moments {
  W mean, rstd;
};

// values holds the row in the wide type, zeros after it up to a whole piece.
template <typename W>
Moments<W> moments(const W* values, int64_t n, double eps, bool rms) {
  using P = Piece<W>;
  using V = typename P::Vector;
  W mean = 0;
  if (!rms) {
    V low(W(0)), high(W(0));
    for_pieces<W>(n, [&](int64_t i, int64_t count) {
      const P x = P::load(values + i, count);
      low = low + x.low;
      high = high + x.high;
    });
    mean = sum_of<V>(low + high) / static_cast<W>(n);
  }
  const V shift(mean);
  V low(W(0)), high(W(0));
  W rest = 0;
  for_pieces<W>(n, [&](int64_t i, int64_t count) {
    if (count == P::kSize) {
      const P x = P::load(values + i);
      low = at::vec::fmadd(x.low - shift, x.low - shift, low);
      high = at::vec::fmadd(x.high - shift, x.high - shift, high);
    } else {
      for (int64_t j = i; j < n; ++j) rest += (values[j] - mean) * (values[j] - mean);
    }
  });
  const W variance = (sum_of<V>(low + high) + rest) / static_cast<W>(n);
  return {mean, W(1) / std::sqrt(variance + static_cast<W>(eps))};
}

// T is the input's type, S that of the residual and of the sum.
template <typename T, typename S>
struct Forward {
  using W = Wide<T>;
  const T* input;
  const S* residual;
  const W *weight, *bias, *rowscale, *layerscale;
  const bool* mask;
  T* out;
  S* sum;
  W *mean, *rstd;
  int64_t n;
  double p, eps;
  bool rms;

  void row(int64_t row, W* values) const {
    using P = Piece<W>;
    using V = typename P::Vector;
    const V factor(row_factor(rowscale, row, p));
    const T* x = input + row * n;
    const S* r = row_of(residual, row, n);
    const bool* keep = row_of(mask, row, n);
    S* total = sum + row * n;
    for_pieces<T>(n, [&](int64_t i, int64_t count) {
      const Piece<T> given = Piece<T>::load(x + i, count);
      P v = times<W>({given.low * factor, given.high * factor}, layerscale ? layerscale + i : nullptr, count);
      v = masked<W>(v, keep ? keep + i : nullptr, count);
      if (r != nullptr) {
        const Piece<S> old = Piece<S>::load(r + i, count);
        v = {v.low + old.low, v.high + old.high};
      }
      v.store(values + i, count);
      Piece<S>{v.low, v.high}.store(total + i, count);
    });
    const auto found = moments<W>(values, n, eps, rms);
    mean[row] = found.mean;
    rstd[row] = found.rstd;
    const V shift(found.mean), scale(found.rstd);
    T* y = out + row * n;
    const int64_t ahead = next_row<W>(n);
    for_pieces<T>(n, [&](int64_t i, int64_t count) {
      prefetch(x + ahead + i);
      if (r != nullptr) prefetch(r + ahead + i);
      const P v = P::load(values + i, count), w = P::load(weight + i, count);
      P made{(v.low - shift) * scale * w.low, (v.high - shift) * scale * w.high};
      if (bias != nullptr) {
        const P b = P::load(bias + i, count);
        made = {made.low + b.low, made.high + b.high};
      }
      Piece<T>{made.low, made.high}.store(y + i, count);
    });
  }
};

// Calls body with values of the input's type and of the sum's, which is the same or the wide one.
template <typename Body>
void dispatch(at::ScalarType input, at::ScalarType sum, const Body& body) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, input, "dropout_add_norm", [&] {
    if (sum == input)
      body(scalar_t(), scalar_t());
    else
      body(scalar_t(), Wide<scalar_t>());
  });
}

std::tuple<Tensor, Tensor, Tensor, Tensor> dropout_add_norm(
    const Tensor& given, const OptionalTensor& given_residual, const Tensor& given_weight,
    const OptionalTensor& given_bias, const OptionalTensor& given_rowscale,
    const OptionalTensor& given_layerscale, const OptionalTensor& given_mask, double p, double eps, bool rms,
    bool wide_sum) {
  const Tensor input = given.contiguous(), residual = contiguous_or_none(given_residual);
  const Tensor mask = contiguous_or_none(given_mask);
  const auto wide = wide_type(input);
  const auto kind = residual.defined() ? residual.scalar_type() : wide_sum ? wide : input.scalar_type();
  const Tensor weight = wide_or_none(given_weight, wide), bias = wide_or_none(given_bias, wide);
  const Tensor rowscale = wide_or_none(given_rowscale, wide);
  const Tensor layerscale = wide_or_none(given_layerscale, wide);
  auto leading = input.sizes().vec();
  leading.back() = 1;
  Tensor out = empty_of_type(input, input.scalar_type()), sum = empty_of_type(input, kind);
  Tensor mean = at::empty(leading, input.options().dtype(wide)), rstd = at::empty_like(mean);
  const int64_t n = input.size(-1);
  dispatch(input.scalar_type(), kind, [&](auto t, auto s) {
    using T = decltype(t);
    using S = decltype(s);
    using W = Wide<T>;
    const Forward<T, S> forward{data<T>(input),
                                data<S>(residual),
                                data<W>(weight),
                                data<W>(bias),
                                data<W>(rowscale),
                                data<W>(layerscale),
                                data<bool>(mask),
                                mutable_data<T>(out),
                                mutable_data<S>(sum),
                                mutable_data<W>(mean),
                                mutable_data<W>(rstd),
                                n,
                                p,
                                eps,
                                rms};
    at::parallel_for(0, row_count(input), rows_per_task(n), [&](int64_t begin, int64_t end) {
      std::vector<W> values(n);
      for (int64_t row = begin; row < end; ++row) forward.row(row, values.data());
    });
  });
  return {out, sum, mean, rstd};
}

template <typename T, typename S>
struct Backward {
  using W = Wide<T>;
  using P = Piece<W>;
  using V = typename P::Vector;
  const T *grad, *input;
  const S *grad_sum, *sum;
  const W *weight, *rowscale, *layerscale, *mean, *rstd;
  const bool* mask;
  T* grad_input;
  S* grad_residual;
  W *grad_weight, *grad_bias, *grad_layerscale;  // each task has rows of its own
  int64_t n;
  double p;
  bool rms;

  static void add(W* to, const P& value, int64_t count) {
    const P old = P::load(to, count);
    P{old.low + value.low, old.high + value.high}.store(to, count);
  }

  void row(int64_t row, int64_t task) const {
    const int64_t start = row * n;
    const V shift(mean[row]), scale(rstd[row]);
    V product_low(W(0)), product_high(W(0)), low(W(0)), high(W(0));
    const auto hat = [&](int64_t i, int64_t count) {
      const Piece<S> x = Piece<S>::load(sum + start + i, count);
      return P{(x.low - shift) * scale, (x.high - shift) * scale};
    };
    // Loads beyond the row give slopes of 0, so that what stands beside them does not count.
    for_pieces<T>(n, [&](int64_t i, int64_t count) {
      const Piece<T> g = Piece<T>::load(grad + start + i, count);
      const P h = hat(i, count), slope = times<W>({g.low, g.high}, weight + i, count);
      product_low = at::vec::fmadd(slope.low, h.low, product_low);
      product_high = at::vec::fmadd(slope.high, h.high, product_high);
      low = low + slope.low;
      high = high + slope.high;
      add(grad_weight + task * n + i, {g.low * h.low, g.high * h.high}, count);
      if (grad_bias != nullptr) add(grad_bias + task * n + i, {g.low, g.high}, count);
    });
    const W size = static_cast<W>(n);
    const V projected(sum_of<V>(product_low + product_high) / size);
    const V average(rms ? W(0) : sum_of<V>(low + high) / size);
    const V factor(row_factor(rowscale, row, p));
    const int64_t ahead = start + next_row<W>(n);
    for_pieces<T>(n, [&](int64_t i, int64_t count) {
      prefetch(grad + ahead + i);
      prefetch(sum + ahead + i);
      if (grad_sum != nullptr) prefetch(grad_sum + ahead + i);
      const Piece<T> g = Piece<T>::load(grad + start + i, count);
      const P h = hat(i, count), slope = times<W>({g.low, g.high}, weight + i, count);
      P d{(slope.low - average - h.low * projected) * scale,
          (slope.high - average - h.high * projected) * scale};
      if (grad_sum != nullptr) {
        const Piece<S> s = Piece<S>::load(grad_sum + start + i, count);
        d = {d.low + s.low, d.high + s.high};
      }
      if (grad_residual != nullptr) Piece<S>{d.low, d.high}.store(grad_residual + start + i, count);
      P dx{d.low * factor, d.high * factor};
      const bool* keep = mask ? mask + start + i : nullptr;
      if (grad_layerscale != nullptr) {
        const Piece<T> x = Piece<T>::load(input + start + i, count);
        const P kept = masked<W>(dx, keep, count);
        add(grad_layerscale + task * n + i, {kept.low * x.low, kept.high * x.high}, count);
      }
      dx = masked<W>(times<W>(dx, layerscale ? layerscale + i : nullptr, count), keep, count);
      Piece<T>{dx.low, dx.high}.store(grad_input + start + i, count);
    });
  }
};

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> dropout_add_norm_backward(
    const Tensor& given_grad, const OptionalTensor& given_grad_sum, const Tensor& given_sum,
    const OptionalTensor& given_input, const Tensor& given_weight, const OptionalTensor& given_rowscale,
    const OptionalTensor& given_layerscale, const OptionalTensor& given_mask, const Tensor& given_mean,
    const Tensor& given_rstd, double p, bool rms, bool with_bias, bool with_residual) {
  const Tensor grad = given_grad.contiguous(), sum = given_sum.contiguous();
  const Tensor grad_sum = contiguous_or_none(given_grad_sum), input = contiguous_or_none(given_input);
  const Tensor mask = contiguous_or_none(given_mask), mean = given_mean.contiguous();
  const Tensor rstd = given_rstd.contiguous();
  const auto wide = wide_type(grad);
  const Tensor weight = wide_or_none(given_weight, wide), rowscale = wide_or_none(given_rowscale, wide);
  const Tensor layerscale = wide_or_none(given_layerscale, wide);
  const int64_t n = grad.size(-1), rows = row_count(grad);
  const int64_t tasks = summing_tasks(rows, n);
  // One row of sums for each task: the result depends on the shape and the number of threads alone.
  const auto sums = [&](bool asked) {
    return asked ? at::zeros({tasks, n}, grad.options().dtype(wide)) : Tensor();
  };
  const Tensor weights = sums(true), biases = sums(with_bias), scales = sums(layerscale.defined());
  Tensor grad_input = empty_of_type(grad, grad.scalar_type());
  Tensor grad_residual = with_residual ? empty_of_type(sum, sum.scalar_type()) : Tensor();
  dispatch(grad.scalar_type(), sum.scalar_type(), [&](auto t, auto s) {
    using T = decltype(t);
    using S = decltype(s);
    using W = Wide<T>;
    const Backward<T, S> backward{data<T>(grad),
                                  data<T>(input),
                                  data<S>(grad_sum),
                                  data<S>(sum),
                                  data<W>(weight),
                                  data<W>(rowscale),
                                  data<W>(layerscale),
                                  data<W>(mean),
                                  data<W>(rstd),
                                  data<bool>(mask),
                                  mutable_data<T>(grad_input),
                                  mutable_data<S>(grad_residual),
                                  mutable_data<W>(weights),
                                  mutable_data<W>(biases),
                                  mutable_data<W>(scales),
                                  n,
                                  p,
                                  rms};
    at::parallel_for(0, tasks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task)
        for (int64_t row = rows * task / tasks; row < rows * (task + 1) / tasks; ++row)
          backward.row(row, task);
    });
  });
  const auto total = [](const Tensor& each) { return each.defined() ? each.sum(0) : Tensor(); };
  return {grad_input, grad_residual, total(weights), total(biases), total(scales)};
}

TORCH_LIBRARY_FRAGMENT(isthmus_cpu, m) {
  m.def("dropout_add_norm", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(dropout_add_norm)));
  m.def("dropout_add_norm_backward",
        torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(dropout_add_norm_backward)));
}

}  // namespace
}  // namespace isthmus::kernels
