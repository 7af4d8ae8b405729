/* Functions that a compiler can vectorise: no branches, no tables. Errors: at most 2 ulp. */
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
/* log(m * 2**e) = e * log(2) + log(m), m within sqrt(0.5) .. sqrt(2). With f = m - 1 and s = f / (2 + f):
   log(m) = f - f * f / 2 + s * (f * f / 2 + R), and R = 2 * atanh(s) / s - 2, a minimax fit in s * s. */
typedef struct {
  float exponent, f, rest;
} split_log; /* log(m) = f - rest */
INLINED split_log split_logf(float x) {
  float is_subnormal = x < 1.17549435e-38f ? 1.0f : 0.0f;
  uint32_t bits = float_bits(is_subnormal != 0.0f ? x * 8388608.0f : x);
  int32_t exponent = (int32_t)(bits >> 23) - 127;
  float m = as_float((bits & 0x7fffffu) | 0x3f800000u);
  int is_above = m > 1.41421356f;
  float f = (is_above ? m * 0.5f : m) - 1.0f, s = f / (2.0f + f), w = s * s, middle = 0.5f * f * f;
  float p = __builtin_fmaf(w, 0.24279078841f, 0.28571428438f);
  p = __builtin_fmaf(p, w, 0.39999999999f);
  p = __builtin_fmaf(p, w, 0.66666666666f);
  return (split_log){(float)(exponent + is_above) - 23.0f * is_subnormal, f, middle - s * __builtin_fmaf(p, w, middle)};
}
INLINED float special_log(float x, float found) {
  found = x == 0.0f ? -INFINITY : found;
  found = x < 0.0f ? NAN : found;
  return x > 3.4028234e38f ? x : (x == x ? found : x);
}
INLINED float fast_logf(float x) {
  split_log l = split_logf(x);
  float low = l.rest - l.exponent * 1.42860677e-6f;
  return special_log(x, __builtin_fmaf(l.exponent, 0.693145752f, l.f - low));
}
INLINED float fast_log2f(float x) {
  split_log l = split_logf(x);
  float low = __builtin_fmaf(l.f - l.rest, 1.92596303e-8f, -1.44269504f * l.rest);
  return special_log(x, __builtin_fmaf(l.f, 1.44269504f, low) + l.exponent);
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
/* erf(x) = x + x * P(x * x) below 1, and 1 - exp(-Q(x)) above: minimax fits. */
INLINED float fast_erff(float x) {
  float magnitude = x < 0 ? -x : x, square = x * x, within = magnitude > 4.0f ? 4.0f : magnitude;
  float p = __builtin_fmaf(7.85387747e-05f, square, -0.000801019836f);
  p = __builtin_fmaf(p, square, 0.00518832821f);
  p = __builtin_fmaf(p, square, -0.0268538129f);
  p = __builtin_fmaf(p, square, 0.112835854f);
  p = __builtin_fmaf(p, square, -0.37612626f);
  p = __builtin_fmaf(p, square, 0.128379166f);
  float q = __builtin_fmaf(2.16975168e-05f, within, -0.000441471406f);
  q = __builtin_fmaf(q, within, 0.00420527812f);
  q = __builtin_fmaf(q, within, -0.0252103209f);
  q = __builtin_fmaf(q, within, 0.108422071f);
  q = __builtin_fmaf(q, within, 0.633216441f);
  q = __builtin_fmaf(q, within, 1.12958026f);
  q = __builtin_fmaf(q, within, -0.000188463993f);
  float far = 1.0f - fast_expf(-q);
  float found = magnitude < 1.0f ? __builtin_fmaf(p, x, x) : (x < 0 ? -far : far);
  return x == x ? found : x;
}

/* The same of double. */
INLINED double clamped_double(double x, double low, double high) {
  int64_t bits = (int64_t)double_bits(x), above = (int64_t)double_bits(high);
  uint64_t within = (uint64_t)(bits < above ? bits : above), below = double_bits(low);
  return as_double(within < below ? within : below);
}
#define WIDE_SHIFT 6755399441056766.0 /* 1.5 * 2**52 + 1022 */
INLINED double times_power_of_2_double(double value, double shifted) {
  int64_t bits = (int64_t)double_bits(shifted), least = 0x4338000000000002, normal = bits > least ? bits : least;
  return value * as_double((uint64_t)normal << 52) *
         as_double(((uint64_t)(bits - normal) << 52) + 0x3ff0000000000000u);
}
INLINED double polynomial(double x, const double* coefficients, const int count) {
  double p = coefficients[count - 1];
  for (int i = count - 2; i >= 0; i--) p = __builtin_fma(p, x, coefficients[i]);
  return p;
}
INLINED double fast_exp(double x) {
  const double fit[] = {0x1p-1, 0x1.5555555555555p-3, 0x1.5555555555551p-5, 0x1.111111111169ep-7,
      0x1.6c16c16c24644p-10, 0x1.a01a019b5befbp-13, 0x1.a01a00bd8f12cp-16, 0x1.71de4b2d1fe8fp-19,
      0x1.27e9a01b62a88p-22, 0x1.ae7bf6714390ap-26, 0x1.1027a6915237ep-29};
  double within = clamped_double(x, -746.0, 710.0);
  double shifted = __builtin_fma(within, 0x1.71547652b82fep+0, WIDE_SHIFT), n = shifted - WIDE_SHIFT;
  double rest = __builtin_fma(n, -0x1.62e42fefa2000p-1, within);
  rest = __builtin_fma(n, -0x1.9ef35793c7673p-41, rest);
  double p = __builtin_fma(polynomial(rest, fit, 11), rest * rest, rest) + 1.0;
  return x == x ? times_power_of_2_double(2.0 * p, shifted) : x;
}
INLINED double fast_exp2(double x) {
  const double fit[] = {1.0, 0x1.62e42fefa39efp-1, 0x1.ebfbdff82c58fp-3, 0x1.c6b08d704a0d6p-5, 0x1.3b2ab6fba4ea8p-7,
      0x1.5d87fe78a1316p-10, 0x1.430912f8599d1p-13, 0x1.ffcbfc7ac1049p-17, 0x1.62c0229a3c3d2p-20,
      0x1.b524d0ef0b8e4p-24, 0x1.e4cd9e294bf46p-28, 0x1.ea141c6a73b77p-32, 0x1.c6d89f4e9e749p-36};
  double within = clamped_double(x, -1076.0, 1025.0);
  double shifted = within + WIDE_SHIFT, rest = within - (shifted - WIDE_SHIFT);
  return x == x ? times_power_of_2_double(2.0 * polynomial(rest, fit, 13), shifted) : x;
}
typedef struct {
  double exponent, f, rest;
} split_log_double;
INLINED split_log_double split_log_of_double(double x) {
  const double fit[] = {0x1.5555555555555p-1, 0x1.9999999999e01p-2, 0x1.249249242b0d9p-2, 0x1.c71c72593b54bp-3,
      0x1.745cde2221905p-3, 0x1.3b20aeec07c56p-3, 0x1.0f5c7c93c8e61p-3, 0x1.0f65ce6ac1acdp-3};
  double is_subnormal = x < 0x1p-1022 ? 1.0 : 0.0;
  uint64_t bits = double_bits(is_subnormal != 0.0 ? x * 0x1p54 : x);
  double m = as_double((bits & 0xfffffffffffffu) | 0x3ff0000000000000u), above = m > 0x1.6a09e667f3bcdp+0 ? 1.0 : 0.0;
  /* The exponent becomes a double by its place in the last bits of 2**52. */
  double exponent = as_double((bits >> 52) | 0x4330000000000000u) - (0x1p52 + 1023.0);
  double f = (above != 0.0 ? m * 0.5 : m) - 1.0, s = f / (2.0 + f), w = s * s, middle = 0.5 * f * f;
  double rest = middle - s * __builtin_fma(polynomial(w, fit, 8), w, middle);
  return (split_log_double){exponent + above - 54.0 * is_subnormal, f, rest};
}
INLINED double special_log_of_double(double x, double found) {
  found = x == 0.0 ? -INFINITY : found;
  found = x < 0.0 ? NAN : found;
  return x > 0x1.fffffffffffffp1023 ? x : (x == x ? found : x);
}
INLINED double fast_log(double x) {
  split_log_double l = split_log_of_double(x);
  double low = l.rest - l.exponent * 0x1.9ef35793c7673p-41;
  return special_log_of_double(x, __builtin_fma(l.exponent, 0x1.62e42fefa2000p-1, l.f - low));
}
INLINED double fast_log2(double x) {
  split_log_double l = split_log_of_double(x);
  double low = __builtin_fma(l.f - l.rest, 0x1.777d0ffda0d24p-56, -0x1.71547652b82fep+0 * l.rest);
  return special_log_of_double(x, __builtin_fma(l.f, 0x1.71547652b82fep+0, low) + l.exponent);
}
/* By double, whose errors are too small to matter. */
INLINED float fast_powf(float x, float y) {
  double magnitude = x < 0 ? -(double)x : x, found = fast_exp2(y * fast_log2(magnitude));
  int is_whole = floorf(y) == y, is_odd = is_whole & (floorf(y * 0.5f) != y * 0.5f);
  int is_negative = float_bits(x) >> 31;
  found = magnitude == 1.0 ? 1.0 : found;
  found = is_negative & is_odd ? -found : found;
  found = (x < 0) & !is_whole & (magnitude < INFINITY) ? NAN : found;
  return (y == 0.0f) | (x == 1.0f) ? 1.0f : (x == x) & (y == y) ? (float)found : x + y;
}
INLINED float inverse_sqrtf(float x) { return 1.0f / sqrtf(x); }
INLINED double inverse_sqrt(double x) { return 1.0 / sqrt(x); }
