// SwiGLU: silu(gate) * up, of two tensors or of the halves of one, which are read and written where they lie.
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <tuple>

#include "kernels/pieces.h"
#include "kernels/pitched.h"
#include "kernels/streaming.h"

namespace isthmus::kernels {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// 1 / x by an estimate and a step of Newton's, which is exact enough for a result that is rounded to a half.
inline Vectorized<float> quick_reciprocal(const Vectorized<float>& x) {
#if defined(CPU_CAPABILITY_AVX512)
  const Vectorized<float> near(_mm512_rcp14_ps(x));
#elif defined(CPU_CAPABILITY_AVX2)
  const Vectorized<float> near(_mm256_rcp_ps(x));
#else
  const Vectorized<float> near = x.reciprocal();
#endif
  return near * (Vectorized<float>(2) - x * near);
}

template <typename T>
auto sigmoid(const typename Piece<T>::Vector& x) {
  using V = typename Piece<T>::Vector;
  const V one(1);
  if constexpr (is_half<T>) {
    // e^87 and its reciprocal are finite in float; beyond them the result is 0.
    const V found = quick_reciprocal(one + at::vec::clamp_max(x.neg(), V(87)).exp_u20());
    return V::blendv(found, V(0), x < V(-87));
  } else {
    return one / (one + x.neg().exp());
  }
}

std::pair<Tensor, Tensor> halves(const Tensor& packed, int64_t dim) {
  const int64_t half = packed.size(dim) / 2;
  return {packed.narrow(dim, 0, half), packed.narrow(dim, half, half)};
}

template <typename T, bool kStream>
void forward_row(const T* gate, const T* up, T* out, int64_t n) {
  using P = Piece<T>;
  for_pieces<T>(n, [&](int64_t i, int64_t count) {
    const P g = P::load(gate + i, count), u = P::load(up + i, count);
    put<kStream>(P{g.low * sigmoid<T>(g.low) * u.low, g.high * sigmoid<T>(g.high) * u.high}, out + i, count);
  });
  if (kStream) end_of_stream();
}

Tensor swiglu(const Tensor& gate, const OptionalTensor& up, int64_t dim) {
  const auto [first, second] = up.has_value() ? std::pair{gate, *up} : halves(gate, dim);
  const Tensor out = at::empty(first.sizes(), first.options());
  const PitchedRows rows({first, second, out});
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, gate.scalar_type(), "swiglu", [&] {
    const scalar_t *g = rows.data<scalar_t>(0), *u = rows.data<scalar_t>(1);
    auto* y = rows.data<scalar_t>(2);
    const auto& pitch = rows.pitches;
    const bool large = out.nbytes() >= kStreamedBytes;
    rows.parallel([&](int64_t row, int64_t begin, int64_t end) {
      scalar_t* to = y + row * pitch[2] + begin;
      const auto run = large && is_aligned(to) ? forward_row<scalar_t, true> : forward_row<scalar_t, false>;
      run(g + row * pitch[0] + begin, u + row * pitch[1] + begin, to, end - begin);
    });
  });
  return out;
}

// With s = sigmoid(gate): dgate = grad * up * s * (1 + gate * (1 - s)), dup = grad * gate * s.
template <typename T, bool kStream>
void backward_row(const T* grad, const T* gate, const T* up, T* grad_gate, T* grad_up, int64_t n) {
  using P = Piece<T>;
  using V = typename P::Vector;
  const V one(1);
  const auto slope = [&](const V& g, const V& s) { return at::vec::fmadd(g, one - s, one); };
  for_pieces<T>(n, [&](int64_t i, int64_t count) {
    const P d = P::load(grad + i, count), g = P::load(gate + i, count), u = P::load(up + i, count);
    const V low = sigmoid<T>(g.low), high = sigmoid<T>(g.high);
    const V scaled_low = d.low * low, scaled_high = d.high * high;
    const P dg{scaled_low * u.low * slope(g.low, low), scaled_high * u.high * slope(g.high, high)};
    put<kStream>(dg, grad_gate + i, count);
    put<kStream>(P{scaled_low * g.low, scaled_high * g.high}, grad_up + i, count);
  });
  if (kStream) end_of_stream();
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
    const bool large = grad_gate.nbytes() >= kStreamedBytes;
    rows.parallel([&](int64_t row, int64_t begin, int64_t end) {
      scalar_t *to_gate = dg + row * pitch[3] + begin, *to_up = du + row * pitch[4] + begin;
      const auto run = large && is_aligned(to_gate) && is_aligned(to_up) ? backward_row<scalar_t, true>
                                                                         : backward_row<scalar_t, false>;
      run(d + row * pitch[0] + begin, g + row * pitch[1] + begin, u + row * pitch[2] + begin, to_gate, to_up,
          end - begin);
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
