// Softmax of scaled and masked scores over the last dimension, as attention has it.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/exponential.h"
#include "kernels/rows.h"

namespace isthmus::kernels {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

Tensor contiguous_like(const Tensor& tensor) { return at::empty(tensor.sizes(), tensor.options()); }

// How many columns a row may see: under `causal`, the last row sees all of them and each row above one fewer.
struct Visible {
  int64_t queries, keys;
  bool causal;

  Visible(const Tensor& input, bool causal)
      : queries(input.dim() > 1 ? input.size(-2) : 1), keys(input.size(-1)), causal(causal) {}

  int64_t of(int64_t row) const {
    return causal ? std::clamp<int64_t>(row % queries + 1 + keys - queries, 0, keys) : keys;
  }
};

// The mask as wide as the input, its rows dense and its other dimensions those it is broadcast to.
Tensor broadcast_mask(const OptionalTensor& mask, const Tensor& input) {
  if (!mask.has_value()) return {};
  auto wide = mask->sizes().vec();
  if (wide.empty()) wide.push_back(1);
  wide.back() = input.size(-1);
  return with_dense_rows(mask->expand(wide)).expand(input.sizes());
}

// Scores of the row, scaled and with -inf where masked, into values, which is filled up with -inf to a whole
// piece; returns the largest.
template <typename T>
Wide<T> load_row(const T* input, const bool* mask, Wide<T> scale, Wide<T>* values, int64_t n) {
  using WidePiece = Piece<Wide<T>>;
  using V = typename WidePiece::Vector;
  constexpr Wide<T> kNone = -std::numeric_limits<Wide<T>>::infinity();
  const V factor(scale);
  V top(kNone);
  for_pieces<T>(n, [&](int64_t i, int64_t count) {
    const Piece<T> x = Piece<T>::load(input + i, count);
    WidePiece v{x.low * factor, x.high * factor};
    if (mask != nullptr || count < WidePiece::kSize) {
      v.store(values + i);
      if (mask != nullptr)
        for (int64_t j = i; j < i + count; ++j) values[j] = mask[j] ? kNone : values[j];
      std::fill(values + i + count, values + i + WidePiece::kSize, kNone);
      v = WidePiece::load(values + i);
    }
    v.store(values + i);
    top = at::vec::maximum(top, at::vec::maximum(v.low, v.high));
  });
  return max_of<V>(top);
}

template <typename T>
void forward_row(const T* input, const bool* mask, Wide<T> scale, Wide<T>* values, T* out, int64_t seen,
                 int64_t n) {
  using WidePiece = Piece<Wide<T>>;
  using V = typename WidePiece::Vector;
  const Wide<T> top = load_row<T>(input, mask, scale, values, seen);
  if (!std::isfinite(top)) {  // all masked: zeros; an infinite score or NaN: no distribution
    std::fill_n(out, seen, T(top < 0 ? Wide<T>(0) : std::numeric_limits<Wide<T>>::quiet_NaN()));
  } else {
    const V shift(top);
    V low(0), high(0);
    for_pieces<T>(seen, [&](int64_t i, int64_t) {
      const auto v = WidePiece::load(values + i);
      const WidePiece e{exponential(v.low - shift), exponential(v.high - shift)};
      e.store(values + i);
      low = low + e.low;
      high = high + e.high;
    });
    const V factor(Wide<T>(1) / sum_of<V>(low + high));
    for_pieces<T>(seen, [&](int64_t i, int64_t count) {
      const auto v = WidePiece::load(values + i);
      Piece<T>{v.low * factor, v.high * factor}.store(out + i, count);
    });
  }
  std::fill_n(out + seen, n - seen, T(0));
}

Tensor scaled_masked_softmax(const Tensor& given, const OptionalTensor& mask, double scale, bool causal) {
  const Tensor input = with_dense_rows(given), hidden = broadcast_mask(mask, input);
  Tensor out = contiguous_like(input);
  const int64_t n = input.size(-1);
  const Visible visible(input, causal);
  const Rows starts(input), mask_starts(hidden.defined() ? hidden : input);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, input.scalar_type(), "softmax", [&] {
    const auto* x = input.const_data_ptr<scalar_t>();
    const bool* m = hidden.defined() ? hidden.const_data_ptr<bool>() : nullptr;
    auto* y = out.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, row_count(input), rows_per_task(n), [&](int64_t begin, int64_t end) {
      std::vector<Wide<scalar_t>> values(n + Piece<scalar_t>::kSize);
      for (int64_t row = begin; row < end; ++row)
        forward_row<scalar_t>(x + starts.offset(row), m ? m + mask_starts.offset(row) : nullptr,
                              static_cast<Wide<scalar_t>>(scale), values.data(), y + row * n, visible.of(row),
                              n);
    });
  });
  return out;
}

// dx = scale * y * (g - sum(g * y)).
template <typename T>
void backward_row(const T* grad, const T* out, Wide<T> scale, T* grad_input, int64_t seen, int64_t n) {
  using P = Piece<T>;
  using V = typename P::Vector;
  V low(0), high(0);
  for_pieces<T>(seen, [&](int64_t i, int64_t count) {
    const P g = P::load(grad + i, count), y = P::load(out + i, count);
    low = at::vec::fmadd(g.low, y.low, low);
    high = at::vec::fmadd(g.high, y.high, high);
  });
  const V dot(sum_of<V>(low + high)), factor(scale);
  for_pieces<T>(seen, [&](int64_t i, int64_t count) {
    const P g = P::load(grad + i, count), y = P::load(out + i, count);
    P{factor * y.low * (g.low - dot), factor * y.high * (g.high - dot)}.store(grad_input + i, count);
  });
  std::fill_n(grad_input + seen, n - seen, T(0));
}

Tensor scaled_masked_softmax_backward(const Tensor& given_grad, const Tensor& given_out, double scale,
                                      bool causal) {
  const Tensor grad = with_dense_rows(given_grad), out = with_dense_rows(given_out);
  Tensor grad_input = contiguous_like(out);
  const int64_t n = out.size(-1);
  const Visible visible(out, causal);
  const Rows grad_starts(grad), starts(out);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, out.scalar_type(), "softmax_backward", [&] {
    const auto* g = grad.const_data_ptr<scalar_t>();
    const auto* y = out.const_data_ptr<scalar_t>();
    auto* dx = grad_input.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, row_count(out), rows_per_task(n), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        backward_row<scalar_t>(g + grad_starts.offset(row), y + starts.offset(row),
                               static_cast<Wide<scalar_t>>(scale), dx + row * n, visible.of(row), n);
    });
  });
  return grad_input;
}

TORCH_LIBRARY_FRAGMENT(isthmus_cpu, m) {
  m.def("scaled_masked_softmax", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(scaled_masked_softmax)));
  m.def("scaled_masked_softmax_backward",
        torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(scaled_masked_softmax_backward)));
}

}  // namespace
}  // namespace isthmus::kernels
