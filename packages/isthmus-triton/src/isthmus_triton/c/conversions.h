/* Bits of floating-point numbers; float16 and bfloat16 to float and back, to the nearest, ties to even. */
#pragma once

#include "common.h"

INLINED float as_float(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
INLINED uint32_t float_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}
INLINED double as_double(uint64_t bits) {
  double value;
  memcpy(&value, &bits, 8);
  return value;
}
INLINED uint64_t double_bits(double value) {
  uint64_t bits;
  memcpy(&bits, &value, 8);
  return bits;
}

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

/* As CUDA converts: out of range saturates, NaN becomes 0. */
INLINED int32_t to_int32(double value) {
  if (!(value > -2147483648.0)) return value == value ? INT32_MIN : 0;
  return value < 2147483647.0 ? (int32_t)value : INT32_MAX;
}
