// exp() of vectors, for softmax and operators based on it.
#pragma once

#include <ATen/cpu/vec/vec.h>

#include <type_traits>

namespace isthmus::kernels {

// exp(x) within two units of float's last place with AVX-512, else 20; 0 for -inf and NaN for NaN.
template <typename W>
at::vec::Vectorized<W> exponential(const at::vec::Vectorized<W>& x) {
#if defined(CPU_CAPABILITY_AVX512)
  if constexpr (std::is_same_v<W, float>) {
    // 2 ** t = 2 ** n * 2 ** f with |f| <= 1/2, the latter by its series. Beyond the bounds, where the result
    // is 0 or infinite, n is not exact and f no fraction. NaN, the second operand, stays.
    const __m512 y = _mm512_min_ps(_mm512_set1_ps(89), _mm512_max_ps(_mm512_set1_ps(-104), x));
    const __m512 t = _mm512_mul_ps(y, _mm512_set1_ps(1.44269504f));
    const __m512 n = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    // The fraction from y itself, by ln(2) in two parts, so that it does not have the rounding of t.
    __m512 f = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), y);
    f = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), f);
    __m512 power = _mm512_set1_ps(1.0f / 720);
    for (const float each : {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f})
      power = _mm512_fmadd_ps(power, f, _mm512_set1_ps(each));
    return _mm512_scalef_ps(power, n);
  }
#endif
  if constexpr (std::is_same_v<W, float>)  // exp_u20 takes NaN for a number
    return at::vec::Vectorized<W>::blendv(x.exp_u20(), x, x.isnan());
  else
    return x.exp();
}

}  // namespace isthmus::kernels
