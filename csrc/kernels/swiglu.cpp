// SwiGLU: silu(gate) * up, of two tensors or of the halves of one, which are read and written where they lie.
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <tuple>

#include "kernels/pieces.h"
#include "kernels/pitched.h"

namespace isthmus::kernels {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// The faster exp where the result is rounded to a half anyway.
template <typename T>
auto exponential(const typename Piece<T>::Vector& x) {
  if constexpr (is_half<T>) {
    return x.exp_u20();
  } else {
    return x.exp();
  }
}

template <typename T>
auto sigmoid(const typename Piece<T>::Vector& x) {
  const typename Piece<T>::Vector one(1);
  return one / (one + exponential<T>(x.neg()));
}

std::pair<Tensor, Tensor> halves(const Tensor& packed, int64_t dim) {
  const int64_t half = packed.size(dim) / 2;
  return {packed.narrow(dim, 0, half), packed.narrow(dim, half, half)};
}

template <typename T>
void forward_row(const T* gate, const T* up, T* out, int64_t n) {
  using P = Piece<T>;
  using V = typename P::Vector;
  const V one(1);
  for_pieces<T>(n, [&](int64_t i, int64_t count) {
    const P g = P::load(gate + i, count), u = P::load(up + i, count);
    P{g.low / (one + exponential<T>(g.low.neg())) * u.low,
      g.high / (one + exponential<T>(g.high.neg())) * u.high}
        .store(out + i, count);
  });
}

Tensor swiglu(const Tensor& gate, const OptionalTensor& up, int64_t dim) {
  const auto [first, second] = up.has_value() ? std::pair{gate, *up} : halves(gate, dim);
  const Tensor out = at::empty(first.sizes(), first.options());
  const PitchedRows rows({first, second, out});
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, gate.scalar_type(), "swiglu", [&] {
    const scalar_t *g = rows.data<scalar_t>(0), *u = rows.data<scalar_t>(1);
    auto* y = rows.data<scalar_t>(2);
    const auto& pitch = rows.pitches;
    rows.parallel([&](int64_t row, int64_t begin, int64_t end) {
      forward_row<scalar_t>(g + row * pitch[0] + begin, u + row * pitch[1] + begin,
                            y + row * pitch[2] + begin, end - begin);
    });
  });
  return out;
}

// With s = sigmoid(gate): dgate = grad * up * s * (1 + gate * (1 - s)), dup = grad * gate * s.
template <typename T>
void backward_row(const T* grad, const T* gate, const T* up, T* grad_gate, T* grad_up, int64_t n) {
  using P = Piece<T>;
  using V = typename P::Vector;
  const V one(1);
  const auto slope = [&](const V& g, const V& s) { return at::vec::fmadd(g, one - s, one); };
  for_pieces<T>(n, [&](int64_t i, int64_t count) {
    const P d = P::load(grad + i, count), g = P::load(gate + i, count), u = P::load(up + i, count);
    const V low = sigmoid<T>(g.low), high = sigmoid<T>(g.high);
    const V scaled_low = d.low * low, scaled_high = d.high * high;
    P{scaled_low * u.low * slope(g.low, low), scaled_high * u.high * slope(g.high, high)}.store(grad_gate + i,
                                                                                                count);
    P{scaled_low * g.low, scaled_high * g.high}.store(grad_up + i, count);
  });
}

std::tuple<Tensor, Tensor> swiglu_backward(const Tensor& grad, const Tensor& gate, const OptionalTensor& up,
                                           int64_t dim) {
  const Tensor grad_gate = at::empty(gate.sizes(), gate.options());
  const Tensor grad_up = up.has_value() ? at::empty(gate.sizes(), gate.options()) : Tensor();
  const auto [first, second] = up.has_value() ? std::pair{gate, *up} : halves(gate, dim);
  const auto [to_first, to_second] = up.has_value() ? std::pair{grad_gate, grad_up} : halves(grad_gate, dim);
  const PitchedRows rows({grad, first, second, to_first, to_second});
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, gate.scalar_type(), "swiglu_backward", [&] {
    const scalar_t *d = rows.data<scalar_t>(0), *g = rows.data<scalar_t>(1), *u = rows.data<scalar_t>(2);
    scalar_t *dg = rows.data<scalar_t>(3), *du = rows.data<scalar_t>(4);
    const auto& pitch = rows.pitches;
    rows.parallel([&](int64_t row, int64_t begin, int64_t end) {
      backward_row<scalar_t>(d + row * pitch[0] + begin, g + row * pitch[1] + begin,
                             u + row * pitch[2] + begin, dg + row * pitch[3] + begin,
                             du + row * pitch[4] + begin, end - begin);
    });
  });
  return {grad_gate, grad_up};
}

TORCH_LIBRARY_FRAGMENT(isthmus_cpu, m) {
  m.def("swiglu", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(swiglu)));
  m.def("swiglu_backward", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(swiglu_backward)));
}

}  // namespace
}  // namespace isthmus::kernels
