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
#pragma GCC unroll 32
  for (int i = count - 2; i >= 0; i--) p = __builtin_fma(p, x, coefficients[i]);
  return p;
}
typedef struct {
  double shifted, found;
} split_exp; /* exp(x) = 2**n * (1 + found) for n + WIDE_SHIFT */
/* exp(x + rest) - 1 for |x| <= log(2) / 2. */
INLINED double exp_fit(double x, double rest) {
  const double fit[] = {0x1p-1, 0x1.5555555555559p-3, 0x1.5555555555559p-5, 0x1.111111110f63ep-7,
      0x1.6c16c16c14d70p-10, 0x1.a01a01b00c367p-13, 0x1.a01a01adc4b73p-16, 0x1.71ddf7fab3e64p-19,
      0x1.27e4cc132b02dp-22, 0x1.af5f4da4b1cdbp-26, 0x1.1f8b4c6b3c913p-29};
  double high = polynomial(x, fit, 11) * (x * x);
  return x + (high + __builtin_fma(rest, x + high, rest));
}
INLINED split_exp split_exp_of_double(double x) {
  double shifted = __builtin_fma(x, 0x1.71547652b82fep+0, WIDE_SHIFT), n = shifted - WIDE_SHIFT;
  double near = __builtin_fma(n, -0x1.62e42fefa2000p-1, x), rest = __builtin_fma(n, -0x1.9ef35793c7673p-41, near);
  return (split_exp){shifted, exp_fit(rest, __builtin_fma(n, -0x1.9ef35793c7673p-41, near - rest))};
}
INLINED double fast_exp(double x) {
  split_exp e = split_exp_of_double(clamped_double(x, -746.0, 710.0));
  return x == x ? times_power_of_2_double(2.0 * (e.found + 1.0), e.shifted) : x;
}
/* 2**(x + rest), for a small rest. */
INLINED double exp2_of_sum(double x, double rest) {
  double within = clamped_double(x, -1076.0, 1025.0), shifted = within + WIDE_SHIFT;
  double near = within - (shifted - WIDE_SHIFT), high = near * 0x1.62e42fefa39efp-1;
  double low = __builtin_fma(near, 0x1.62e42fefa39efp-1, -high) + near * 0x1.abc9e3b39803fp-56;
  double found = exp_fit(high, __builtin_fma(rest, 0x1.62e42fefa39efp-1, low));
  return x == x ? times_power_of_2_double(2.0 * (found + 1.0), shifted) : x;
}
INLINED double fast_exp2(double x) { return exp2_of_sum(x, 0.0); }
/* tanh(x) = e / (e + 2) for e = exp(2 * x) - 1; the quotient is corrected by what the two sums lose. */
INLINED double fast_tanh(double x) {
  double magnitude = x < 0 ? -x : x;
  split_exp e = split_exp_of_double(2.0 * (magnitude > 22.0 ? 22.0 : magnitude));
  double scale = 2.0 * as_double(double_bits(e.shifted) << 52), start = scale - 1.0;
  double grown = __builtin_fma(scale, e.found, start), lost = __builtin_fma(scale, e.found, start - grown);
  double below = grown + 2.0, found = grown / below;
  double error = __builtin_fma(-found, below, grown) - found * (grown - (below - 2.0)) + lost * (1.0 - found);
  found += error / below;
  return (x == x) & (x != 0.0) ? (x < 0 ? -found : found) : x;
}
/* As fast_erff; Q is a polynomial of x - 1, where its rounding counts. */
INLINED double fast_erf(double x) {
  const double p[] = {0x1.06eba8214db69p-3, -0x1.812746b0379e6p-2, 0x1.ce2f21a042b32p-4, -0x1.b82ce31284e9cp-6,
      0x1.565bcd0dbc1adp-8, -0x1.c02db3db06d60p-11, 0x1.f9a321dd3898cp-14, -0x1.f4d1e3a67dc3ep-17,
      0x1.b9df2954a9147p-20, -0x1.5f1f0634fb062p-23, 0x1.f7b72e5bcd4ffp-27, -0x1.38a4b8db8a7c5p-30,
      0x1.0613987edce0dp-34};
  const double q[] = {0x1.d97fbf27aa2a1p+0, 0x1.51c9b0006c23cp+1, 0x1.afabc11a28fb2p-1, 0x1.5477f09c9e5d4p-5,
      -0x1.48c9d40a03321p-7, 0x1.033f695b9ffdep-9, -0x1.f1b4ab83824aap-13, -0x1.b8bfdb3bcf904p-16,
      0x1.c75cf9e1b7a35p-16, -0x1.416310cba0703p-17, 0x1.0ef8be8251cfap-19, -0x1.b5cf728b3c1dcp-24,
      -0x1.145ebe4b5125dp-23, 0x1.2cd7c9ef465f4p-24, -0x1.87572597e0ac4p-26, 0x1.7512f6b86a30cp-28,
      -0x1.0cec14b80e25ep-30, 0x1.1f983f8c40b1dp-33, -0x1.af886061e2828p-37, 0x1.9537ece549bb1p-41,
      -0x1.65ba799e07215p-46};
  double magnitude = x < 0 ? -x : x, square = x * x, within = magnitude > 6.0 ? 6.0 : magnitude;
  double far = 1.0 - fast_exp(-polynomial(within - 1.0, q, 21));
  double found = magnitude < 1.0 ? __builtin_fma(polynomial(square, p, 13), x, x) : (x < 0 ? -far : far);
  return x == x ? found : x;
}
typedef struct {
  double exponent, f;
} scientific; /* x = (1 + f) * 2**exponent */
INLINED scientific scientific_of(double x) {
  double is_subnormal = x < 0x1p-1022 ? 1.0 : 0.0;
  uint64_t bits = double_bits(is_subnormal != 0.0 ? x * 0x1p54 : x);
  double m = as_double((bits & 0xfffffffffffffu) | 0x3ff0000000000000u), above = m > 0x1.6a09e667f3bcdp+0 ? 1.0 : 0.0;
  /* The exponent becomes a double by its place in the last bits of 2**52. */
  double exponent = as_double((bits >> 52) | 0x4330000000000000u) - (0x1p52 + 1023.0);
  return (scientific){exponent + above - 54.0 * is_subnormal, (above != 0.0 ? m * 0.5 : m) - 1.0};
}
/* 2 * atanh(s) / s - 2 = w * (2 / 3 + this) for w = s * s. */
INLINED double atanh_fit(double w) {
  const double fit[] = {0x1.999999999999ap-2, 0x1.2492492492523p-2, 0x1.c71c71c6ea272p-3, 0x1.745d177afd530p-3,
      0x1.3b1395a8916f6p-3, 0x1.1118d06f5f380p-3, 0x1.df7b0c31db592p-4, 0x1.e04027a01abf5p-4};
  return polynomial(w, fit, 8) * w;
}
typedef struct {
  double exponent, f, rest;
} split_log_double;
INLINED split_log_double split_log_of_double(double x) {
  scientific n = scientific_of(x);
  double s = n.f / (2.0 + n.f), w = s * s, middle = 0.5 * n.f * n.f;
  double rest = middle - s * __builtin_fma(0x1.5555555555555p-1 + atanh_fit(w), w, middle);
  return (split_log_double){n.exponent, n.f, rest};
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
/* A number as the sum of two. */
typedef struct {
  double high, low;
} pair;
INLINED pair sum_of(double large, double small) {
  double sum = large + small;
  return (pair){sum, small - (sum - large)};
}
INLINED pair product_of(pair a, pair b) {
  double high = a.high * b.high;
  return (pair){high, __builtin_fma(a.high, b.high, -high) + (a.high * b.low + a.low * b.high)};
}
/* log2(x) for x > 0, to some 66 bits. */
INLINED pair log2_pair(double x) {
  scientific n = scientific_of(x);
  pair below = sum_of(2.0, n.f), s = {n.f / below.high, 0.0};
  s.low = (__builtin_fma(-s.high, below.high, n.f) - s.high * below.low) / below.high;
  pair w = product_of(s, s), c = sum_of(0x1.5555555555555p-1, atanh_fit(w.high));
  c.low += 0x1.5555555555555p-55;
  pair rest = product_of(w, c), factor = sum_of(2.0, rest.high);
  factor.low += rest.low;
  pair found = product_of(product_of(s, factor), (pair){0x1.71547652b82fep+0, 0x1.777d0ffda0d24p-56});
  pair sum = sum_of(n.exponent, found.high);
  return (pair){sum.high, sum.low + found.low};
}
/* The special cases of x**y; found: of the magnitude of x. */
INLINED double special_pow(double x, double y, double found) {
  double magnitude = x < 0 ? -x : x;
  int is_whole = floor(y) == y, is_odd = is_whole & (floor(y * 0.5) != y * 0.5);
  found = magnitude == 1.0 ? 1.0 : found;
  found = (int)(double_bits(x) >> 63) & is_odd ? -found : found;
  found = (x < 0) & !is_whole & (magnitude < INFINITY) ? NAN : found;
  return (y == 0.0) | (x == 1.0) ? 1.0 : (x == x) & (y == y) ? found : x + y;
}
INLINED double fast_pow(double x, double y) {
  double magnitude = x < 0 ? -x : x;
  pair log = log2_pair(magnitude);
  log.high = magnitude == 0.0 ? -INFINITY : magnitude > 0x1.fffffffffffffp1023 ? INFINITY : log.high;
  double high = y * log.high, low = __builtin_fma(y, log.high, -high) + y * log.low;
  return special_pow(x, y, exp2_of_sum(high, (high < 1100.0) & (high > -1100.0) ? low : 0.0));
}
/* By double, whose errors are too small to matter. */
INLINED float fast_powf(float x, float y) {
  return (float)special_pow(x, y, fast_exp2(y * fast_log2(x < 0 ? -(double)x : x)));
}
/* Quarter turns from -2 to 2, and what is lost. The products of a float with 24 digits of 2 / pi are exact, and those
   that are whole turns vanish. */
INLINED pair quarter_turns(double x) {
  const double digits[] = {0x1.45f306p-1, 0x1.b93910p-26, 0x1.529fc0p-52, 0x1.3abe88p-75, 0x1.ea69bap-97, 0x1.81b6c4p-121,
      0x1.2b3278p-145, 0x1.0e4104p-170};
  pair turns = {0.0, 0.0};
  for (int i = 7; i >= 0; i--) {
    double part = x * digits[i];
    part -= 4.0 * rint(part * 0.25);
    double sum = turns.high + part, second = sum - turns.high;
    turns.low += (turns.high - (sum - second)) + (part - second);
    turns.high = sum - 4.0 * rint(sum * 0.25);
  }
  return turns;
}
/* The sine of an angle and of some more quarter turns, by Taylor's series. */
INLINED float sine_of(pair turns, int more) {
  double nearest = rint(turns.high), angle = (turns.high - nearest + turns.low) * M_PI_2, w = angle * angle;
  const double sine[] = {1.0, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800};
  const double cosine[] = {1.0, -1.0 / 2, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600};
  int quarter = (int)nearest + more;
  double found = quarter & 1 ? polynomial(w, cosine, 7) : angle * polynomial(w, sine, 6);
  return (float)(quarter & 2 ? -found : found);
}
INLINED float fast_sinf(float x) { return x == 0.0f ? x : sine_of(quarter_turns(x), 0); }
INLINED float fast_cosf(float x) { return sine_of(quarter_turns(x), 1); }
INLINED float inverse_sqrtf(float x) { return 1.0f / sqrtf(x); }
INLINED double inverse_sqrt(double x) { return 1.0 / sqrt(x); }
