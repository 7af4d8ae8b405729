/* What all headers use; in OpenCL C, opencl.h is in its place. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INLINED static inline __attribute__((always_inline))
#define NOT_INLINED __attribute__((noinline))
#define ALIGNED __attribute__((aligned(64)))
#define GLOBAL
#define INDEPENDENT _Pragma("GCC ivdep")

/* Bits of floating-point numbers. */
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

typedef float vector16 __attribute__((vector_size(64)));
typedef float vector16_unaligned __attribute__((vector_size(64), aligned(4)));
#define LOAD16(p) (*(const vector16_unaligned*)(p))
#define STORE16(p, v) (*(vector16_unaligned*)(p) = (v))
