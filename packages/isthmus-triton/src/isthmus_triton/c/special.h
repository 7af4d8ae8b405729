/* Special functions that the C library lacks, in double. */
#pragma once

#include "common.h"

/* Newton's method on erf, of the complement where that is precise; the start is Winitzki's approximation. */
static double erf_inverse(double y) {
  double left = 1 - fabs(y);
  if (!(left > 0)) return left == 0 ? copysign((double)INFINITY, y) : NAN;
  double l = log(left * (1 + fabs(y))), a = 4.33 + l / 2;
  double x = sqrt(sqrt(a * a - l / 0.147) - a);
  for (int i = 0; i < 4; i++) {
    double error = left < 0.5 ? left - erfc(x) : erf(x) - fabs(y);
    double step = error * 0.88622692545275801 * exp(x * x);
    x -= step / (1 + x * step);
  }
  return copysign(x, y);
}
/* exp(x * x) * erfc(x) */
static double scaled_erfc(double x) {
  if (x < 25) return exp(x * x) * erfc(x);
  double w = 0.5 / (x * x); /* the asymptotic series */
  return 0.56418958354775629 / x * (1 - w * (1 - 3 * w * (1 - 5 * w * (1 - 7 * w * (1 - 9 * w)))));
}
/* The modified Bessel function of the first kind, by its series, all of whose terms are positive. */
static double bessel_i(int order, double x) {
  double quarter = x * x / 4, term = order ? x / 2 : 1, sum = term;
  if (!(fabs(x) < 714)) return x == x ? (order ? copysign((double)INFINITY, x) : INFINITY) : x;
  for (int k = 1; fabs(term) > 1e-17 * fabs(sum); k++) sum += term *= quarter / ((double)k * (k + order));
  return sum;
}
