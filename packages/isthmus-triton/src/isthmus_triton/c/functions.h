/* Functions of float that a compiler can vectorise: no branches, no tables. Errors: at most 2 ulp. */
#pragma once

#include "conversions.h"

/* polynomial * 2**exponent, in two steps so that results underflow and overflow as they should. */
INLINED float times_power_of_2(float polynomial, float exponent) {
  int32_t whole = (int32_t)exponent, half = whole >> 1;
  return polynomial * as_float((uint32_t)(half + 127) << 23) * as_float((uint32_t)(whole - half + 127) << 23);
}
/* exp of |x| <= log(2) / 2, by its Taylor series with rounded coefficients. */
INLINED float exp_near_0(float x) {
  float p = 1.98756915e-4f;
  p = __builtin_fmaf(p, x, 1.39819995e-3f);
  p = __builtin_fmaf(p, x, 8.33345205e-3f);
  p = __builtin_fmaf(p, x, 4.16657962e-2f);
  p = __builtin_fmaf(p, x, 1.66666657e-1f);
  p = __builtin_fmaf(p, x, 5.00000000e-1f);
  return __builtin_fmaf(p, x * x, x) + 1.0f;
}
/* The nearest whole number: a sum with 1.5 * 2**23 rounds away the fraction. */
INLINED float nearest_whole(float x) { return (x + 12582912.0f) - 12582912.0f; }

INLINED float fast_expf(float x) {
  float within = x > 89.0f ? 89.0f : x;
  within = within < -105.0f ? -105.0f : within;
  float n = nearest_whole(within * 1.44269504f);
  float rest = __builtin_fmaf(n, -0.693145752f, within); /* log(2) in two parts */
  rest = __builtin_fmaf(n, -1.42860677e-6f, rest);
  return times_power_of_2(exp_near_0(rest), n == n ? n : 0.0f);
}
INLINED float fast_exp2f(float x) {
  float within = x > 129.0f ? 129.0f : x;
  within = within < -152.0f ? -152.0f : within;
  float n = nearest_whole(within);
  return times_power_of_2(exp_near_0((within - n) * 0.693147182f), n == n ? n : 0.0f);
}
/* log(m * 2**e) = e * log(2) + 2 * atanh((m - 1) / (m + 1)), m within sqrt(0.5) .. sqrt(2). */
INLINED float fast_logf(float x) {
  float is_subnormal = x < 1.17549435e-38f ? 1.0f : 0.0f;
  uint32_t bits = float_bits(is_subnormal != 0.0f ? x * 8388608.0f : x);
  int32_t exponent = (int32_t)(bits >> 23) - 127;
  float m = as_float((bits & 0x7fffffu) | 0x3f800000u);
  int is_above = m > 1.41421356f;
  m = is_above ? m * 0.5f : m;
  float e = (float)(exponent + is_above) - 23.0f * is_subnormal;
  float z = (m - 1.0f) / (m + 1.0f), w = z * z;
  float p = __builtin_fmaf(w, 0.24279078841f, 0.28571428438f);
  p = __builtin_fmaf(p, w, 0.39999999999f);
  p = __builtin_fmaf(p, w, 0.66666666666f);
  float found = __builtin_fmaf(e, 0.693147182f, __builtin_fmaf(p * w, z, 2.0f * z));
  found = x == 0.0f ? -INFINITY : found;
  found = x < 0.0f ? NAN : found;
  return x > 3.4028234e38f ? x : (x == x ? found : x);
}
/* Near 0 a polynomial of x * x; the constants are those of the Cephes library. */
INLINED float fast_tanhf(float x) {
  float magnitude = x < 0 ? -x : x, square = x * x;
  float far = 1.0f - 2.0f / (fast_expf(2.0f * magnitude) + 1.0f);
  float p = -5.70498872745e-3f;
  p = __builtin_fmaf(p, square, 2.06390887954e-2f);
  p = __builtin_fmaf(p, square, -5.37397155531e-2f);
  p = __builtin_fmaf(p, square, 1.33314422036e-1f);
  p = __builtin_fmaf(p, square, -3.33332819422e-1f);
  float near_0 = __builtin_fmaf(p * square, x, x);
  return magnitude < 0.625f ? near_0 : (x < 0 ? -far : x == x ? far : x);
}
INLINED float inverse_sqrtf(float x) { return 1.0f / sqrtf(x); }
INLINED double inverse_sqrt(double x) { return 1.0 / sqrt(x); }
