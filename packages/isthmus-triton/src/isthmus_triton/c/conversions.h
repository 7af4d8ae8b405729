/* float16, bfloat16 and numbers of 8 and 4 bits to float and back, to the nearest, ties to even. */
#pragma once

#include "common.h"

INLINED float bfloat16_to_float(uint16_t bits) { return as_float((uint32_t)bits << 16); }
INLINED uint16_t float_to_bfloat16(float value) {
  uint32_t x = float_bits(value), rounded = (x + 0x7fffu + ((x >> 16) & 1u)) >> 16;
  return (uint16_t)((x & 0x7fffffffu) > 0x7f800000u ? ((x >> 16) | 0x40u) : rounded);
}

/* The exponent is moved by a product, which makes subnormal numbers normal. */
INLINED float half_to_float(uint16_t bits) {
  uint32_t magnitude = (uint32_t)(bits & 0x7fff) << 13, sign = (uint32_t)(bits & 0x8000) << 16;
  uint32_t found = float_bits(as_float(magnitude) * 0x1p112f);
  found = magnitude >= 0x0f800000u ? (magnitude | 0x7f800000u) : found;
  return as_float(found | sign);
}
/* Subnormal results are rounded by a sum with 0.5, whose last bit is theirs. */
INLINED uint16_t float_to_half(float value) {
  uint32_t x = float_bits(value), sign = (x >> 16) & 0x8000u;
  x &= 0x7fffffffu;
  uint32_t normal = (x - 0x38000000u + 0xfffu + ((x >> 13) & 1u)) >> 13;
  uint32_t subnormal = float_bits(as_float(x) + 0.5f) - 0x3f000000u;
  uint32_t found = x < 0x38800000u ? subnormal : normal;
  found = x >= 0x477ff000u ? 0x7c00u : found;
  found = x > 0x7f800000u ? 0x7e00u : found;
  return (uint16_t)(found | sign);
}
INLINED float round_to_half(float value) { return half_to_float(float_to_half(value)); }
INLINED float round_to_bfloat16(float value) { return bfloat16_to_float(float_to_bfloat16(value)); }

INLINED float without_infinity(float value) {
  return value > 0x1.fffffep127f ? 0x1.fffffep127f : value < -0x1.fffffep127f ? -0x1.fffffep127f : value;
}

/* Numbers of 8 bits: SPECIAL and above is not finite; what is beyond LARGEST becomes it. Infinity, which only e5m2 has,
   is kept between memory and float, and becomes LARGEST when it is rounded. */
#define FLOAT8(NAME, MANTISSA, BIAS, LARGEST, SPECIAL, NOT_A_NUMBER)                                             \
  INLINED float NAME##_to_float(uint8_t bits) {                                                                  \
    uint32_t magnitude = (uint32_t)(bits & 0x7f) << (23 - MANTISSA), sign = (uint32_t)(bits & 0x80) << 24;       \
    uint32_t found = float_bits(as_float(magnitude) * as_float((uint32_t)(254 - BIAS) << 23));                   \
    found = (bits & 0x7f) >= SPECIAL ? magnitude | 0x7f800000u : found;                                          \
    found = NOT_A_NUMBER == 0x80 && bits == 0x80 ? 0x7fc00000u : found;                                          \
    return as_float(found | sign);                                                                               \
  }                                                                                                              \
  INLINED uint8_t float_to_##NAME(float value) {                                                                 \
    uint32_t x = float_bits(value), magnitude = x & 0x7fffffffu, unit = (uint32_t)(151 - BIAS - MANTISSA) << 23; \
    uint32_t normal = magnitude - ((127u - BIAS) << 23) + (1u << (22 - MANTISSA)) - 1u;                          \
    normal = (normal + ((magnitude >> (23 - MANTISSA)) & 1u)) >> (23 - MANTISSA);                                \
    uint32_t subnormal = float_bits(as_float(magnitude) + as_float(unit)) - unit;                                \
    uint32_t found = magnitude < (128u - BIAS) << 23 ? subnormal : normal;                                       \
    found = found > LARGEST ? LARGEST : found;                                                                   \
    found = SPECIAL < NOT_A_NUMBER && magnitude == 0x7f800000u ? SPECIAL : found;                                \
    found |= NOT_A_NUMBER == 0x80 && found == 0 ? 0 : (x >> 24) & 0x80u;                                         \
    return (uint8_t)(magnitude > 0x7f800000u ? NOT_A_NUMBER : found);                                            \
  }                                                                                                              \
  INLINED float round_to_##NAME(float value) { return NAME##_to_float(float_to_##NAME(without_infinity(value))); }
FLOAT8(e5m2, 2, 15, 0x7b, 0x7c, 0x7f)
FLOAT8(e4m3, 3, 7, 0x7e, 0x7f, 0x7f)
FLOAT8(e4m3_fnuz, 3, 8, 0x7f, 0x80, 0x80)
FLOAT8(e5m2_fnuz, 2, 16, 0x7f, 0x80, 0x80)
FLOAT8(e4m3_b15, 3, 15, 0x7f, 0x80, 0x7f)
/* 4 bits, and a power of 2. */
INLINED float e2m1_to_float(uint8_t bits) {
  float magnitude = as_float((uint32_t)(bits & 7) << 22) * 0x1p126f;
  return bits & 8 ? -magnitude : magnitude;
}
INLINED float e8m0_to_float(uint8_t bits) {
  uint32_t found = bits ? (uint32_t)bits << 23 : 0x00400000u;
  return as_float(bits == 255 ? 0x7fc00000u : found);
}
/* A number without the bits that a format has not; what is beyond the largest one becomes it. */
INLINED float toward_zero(float value, int mantissa, int bias, float largest) {
  uint32_t x = float_bits(value), exponent = (x >> 23) & 0xff;
  int left_out = 23 - mantissa + (exponent < 128u - bias ? (int)(128u - bias - exponent) : 0);
  float found = as_float(x & (left_out > 23 ? 0x80000000u : ~((1u << left_out) - 1u)));
  found = found > largest ? largest : found < -largest ? -largest : found;
  return exponent == 255 ? value : found;
}

/* As CUDA converts: out of range saturates, NaN becomes 0. */
INLINED int32_t to_int32(double value) {
  if (!(value > -2147483648.0)) return value == value ? INT32_MIN : 0;
  return value < 2147483647.0 ? (int32_t)value : INT32_MAX;
}
