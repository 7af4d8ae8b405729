/* Functions of float that a compiler can vectorise: no branches, no tables. Errors: at most 2 ulp. */
#pragma once

#include "conversions.h"

/* Comparisons of bits as integers are one instruction each, those of floats two. NaN becomes a bound. */
INLINED float clamped(float x, float low, float high) {
  int32_t bits = (int32_t)float_bits(x), above = (int32_t)float_bits(high);
  uint32_t within = (uint32_t)(bits < above ? bits : above), below = float_bits(low);
  return as_float(within < below ? within : below);
}
/* SHIFT added to a float leaves its nearest whole number + 126 in the last bits. */
#define SHIFT 12583038.0f
/* value * 2**(n - 1) for n + SHIFT, in two steps so that subnormal results are rounded once. */
INLINED float times_power_of_2(float value, float shifted) {
  int32_t bits = (int32_t)float_bits(shifted), least = 0x4b400002, normal = bits > least ? bits : least;
  return value * as_float((uint32_t)normal << 23) * as_float(((uint32_t)(bits - normal) << 23) + 0x3f800000u);
}
/* The polynomials are minimax fits of 2 exp(x) for |x| <= log(2) / 2, and of 2 * 2**x for |x| <= 0.5. */
INLINED float fast_expf(float x) {
  float within = clamped(x, -105.0f, 89.0f);
  float shifted = __builtin_fmaf(within, 1.44269504f, SHIFT), n = shifted - SHIFT;
  float rest = __builtin_fmaf(n, -0.693145752f, within); /* log(2) in two parts */
  rest = __builtin_fmaf(n, -1.42860677e-6f, rest);
  float p = __builtin_fmaf(0.00281225587f, rest, 0.0167580415f);
  p = __builtin_fmaf(p, rest, 0.0833295509f);
  p = __builtin_fmaf(p, rest, 0.333327293f);
  p = __builtin_fmaf(p, rest, 1.00000012f);
  p = __builtin_fmaf(p, rest, 2.0f);
  p = __builtin_fmaf(p, rest, 2.0f);
  return x == x ? times_power_of_2(p, shifted) : x;
}
INLINED float fast_exp2f(float x) {
  float within = clamped(x, -152.0f, 129.0f);
  float shifted = within + SHIFT, rest = within - (shifted - SHIFT);
  float p = __builtin_fmaf(0.000311893615f, rest, 0.00268132891f);
  p = __builtin_fmaf(p, rest, 0.0192353856f);
  p = __builtin_fmaf(p, rest, 0.111006208f);
  p = __builtin_fmaf(p, rest, 0.480453044f);
  p = __builtin_fmaf(p, rest, 1.38629448f);
  p = __builtin_fmaf(p, rest, 2.0f);
  return x == x ? times_power_of_2(p, shifted) : x;
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
