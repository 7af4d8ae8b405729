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

template <typename V>
V sigmoid(const V& x) {
  return V(1) / (V(1) + x.neg().exp());
}

#if defined(CPU_CAPABILITY_AVX512)
// Within 2 units in the last place, and without a call or a division; 0 where e^-x is larger than 2^126.
inline Vectorized<float> sigmoid(const Vectorized<float>& x) {
  const auto all = [](float value) { return _mm512_set1_ps(value); };
  // NaN goes through: of two operands, min and max return the second if one is NaN.
  const __m512 bounded = _mm512_min_ps(all(88.f), _mm512_max_ps(all(-88.f), _mm512_sub_ps(all(0.f), x)));
  // e^-x as a power of 2, times e^part by a polynomial, near the best of its degree for |part| <= ln(2) / 2.
  const __m512 power =
      _mm512_roundscale_ps(_mm512_mul_ps(bounded, all(1.44269504f)), _MM_FROUND_TO_NEAREST_INT);
  __m512 part = _mm512_fnmadd_ps(power, all(0.693359375f), bounded);  // ln(2) in two parts, the first exact
  part = _mm512_fnmadd_ps(power, all(-2.12194442e-4f), part);
  __m512 e = all(1.39411609e-3f);
  for (const float each : {8.37516785e-3f, 4.16663513e-2f, 0.166664153f, 0.5f, 1.f, 1.f})
    e = _mm512_fmadd_ps(e, part, all(each));
  const __m512 sum = _mm512_add_ps(all(1.f), _mm512_scalef_ps(e, power));
  // The reciprocal by an estimate and a step of Newton's.
  const __mmask16 inside = _mm512_cmp_ps_mask(bounded, all(87.336544f), _CMP_LT_OQ);
  const __m512 near = _mm512_maskz_rcp14_ps(inside, sum);
  return _mm512_fmadd_ps(near, _mm512_fnmadd_ps(sum, near, all(1.f)), near);
}
#endif

std::pair<Tensor, Tensor> halves(const Tensor& packed, int64_t dim) {
  const int64_t half = packed.size(dim) / 2;
  TORCH_CHECK_VALUE(packed.size(dim) == 2 * half, "swiglu: the packed input has ", packed.size(dim),
                    " elements along dimension ", dim, "; it needs an even number");
  return {packed.narrow(dim, 0, half), packed.narrow(dim, half, half)};
}

template <typename T, bool kStream>
void forward_row(const T* gate, const T* up, T* out, int64_t n) {
  using P = Piece<T>;
  for_pieces<T>(n, [&](int64_t i, int64_t count) {
    const P g = load_ahead(gate + i, count), u = load_ahead(up + i, count);
    put<kStream>(P{g.low * sigmoid(g.low) * u.low, g.high * sigmoid(g.high) * u.high}, out + i, count);
  });
}

Tensor swiglu(const Tensor& gate, const OptionalTensor& up, int64_t dim) {
  const auto [first, second] = up.has_value() ? std::pair{gate, *up} : halves(gate, dim);
  const Tensor out = at::empty(first.sizes(), first.options());
  const PitchedRows rows("swiglu", {first, second, out}, 1);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, gate.scalar_type(), "swiglu", [&] {
    const scalar_t *g = rows.data<scalar_t>(0), *u = rows.data<scalar_t>(1);
    auto* y = rows.data<scalar_t>(2);
    const auto& pitch = rows.pitches;
    const bool large = out.nbytes() >= kStreamedBytes;
    const auto done = [&] {
      if (large) end_of_stream();
    };
    rows.parallel(
        [&](int64_t row, int64_t begin, int64_t end) {
          scalar_t* to = y + row * pitch[2] + begin;
          const auto run =
              large && is_aligned(to) ? forward_row<scalar_t, true> : forward_row<scalar_t, false>;
          run(g + row * pitch[0] + begin, u + row * pitch[1] + begin, to, end - begin);
        },
        done);
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
    const P d = load_ahead(grad + i, count), g = load_ahead(gate + i, count), u = load_ahead(up + i, count);
    const V low = sigmoid(g.low), high = sigmoid(g.high);
    const V scaled_low = d.low * low, scaled_high = d.high * high;
    const P dg{scaled_low * u.low * slope(g.low, low), scaled_high * u.high * slope(g.high, high)};
    put<kStream>(dg, grad_gate + i, count);
    put<kStream>(P{scaled_low * g.low, scaled_high * g.high}, grad_up + i, count);
  });
}

std::tuple<Tensor, Tensor> swiglu_backward(const Tensor& grad, const Tensor& gate, const OptionalTensor& up,
                                           int64_t dim) {
  const Tensor grad_gate = at::empty(gate.sizes(), gate.options());
  const Tensor grad_up = up.has_value() ? at::empty(gate.sizes(), gate.options()) : Tensor();
  const auto [first, second] = up.has_value() ? std::pair{gate, *up} : halves(gate, dim);
  const auto [to_first, to_second] = up.has_value() ? std::pair{grad_gate, grad_up} : halves(grad_gate, dim);
  const PitchedRows rows("swiglu_backward", {grad, first, second, to_first, to_second}, 2);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, gate.scalar_type(), "swiglu_backward", [&] {
    const scalar_t *d = rows.data<scalar_t>(0), *g = rows.data<scalar_t>(1), *u = rows.data<scalar_t>(2);
    scalar_t *dg = rows.data<scalar_t>(3), *du = rows.data<scalar_t>(4);
    const auto& pitch = rows.pitches;
    const bool large = grad_gate.nbytes() >= kStreamedBytes;
    const auto done = [&] {
      if (large) end_of_stream();
    };
    rows.parallel(
        [&](int64_t row, int64_t begin, int64_t end) {
          scalar_t *to_gate = dg + row * pitch[3] + begin, *to_up = du + row * pitch[4] + begin;
          const auto run = large && is_aligned(to_gate) && is_aligned(to_up) ? backward_row<scalar_t, true>
                                                                             : backward_row<scalar_t, false>;
          run(d + row * pitch[0] + begin, g + row * pitch[1] + begin, u + row * pitch[2] + begin, to_gate,
              to_up, end - begin);
        },
        done);
  });
  return {grad_gate, grad_up};
}

TORCH_LIBRARY_FRAGMENT(isthmus_cpu, m) {
  m.def("swiglu", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(swiglu)));
  m.def("swiglu_backward", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(swiglu_backward)));
}

}  // namespace
}  // namespace isthmus::kernels
