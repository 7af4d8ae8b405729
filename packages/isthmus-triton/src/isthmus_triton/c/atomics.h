/* Atomic updates; each returns the value before. */
#pragma once

#include "conversions.h"

#define ATOMIC_BY_EXCHANGE(T, BITS, NAME, RESULT)                                                       \
  INLINED T NAME(T* p, T v) {                                                                           \
    BITS old = __atomic_load_n((BITS*)p, __ATOMIC_RELAXED), new;                                        \
    T f, result;                                                                                        \
    do {                                                                                                \
      memcpy(&f, &old, sizeof f);                                                                       \
      result = RESULT;                                                                                  \
      memcpy(&new, &result, sizeof new);                                                                \
    } while (!__atomic_compare_exchange_n((BITS*)p, &old, new, 1, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)); \
    return f;                                                                                           \
  }
#define ATOMIC_16_BITS(NAME, UP, DOWN, RESULT)                                                          \
  INLINED float NAME(uint16_t* p, float v) {                                                            \
    uint16_t old = __atomic_load_n(p, __ATOMIC_RELAXED);                                                \
    float f;                                                                                            \
    do f = UP(old);                                                                                     \
    while (!__atomic_compare_exchange_n(p, &old, DOWN(RESULT), 1, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)); \
    return f;                                                                                           \
  }
#define ATOMIC_SHORT_FLOATS(S, NAME)                                                                             \
  ATOMIC_16_BITS(atomic_fadd_##S, NAME##_to_float, float_to_##NAME, f + v)                                       \
  ATOMIC_16_BITS(atomic_max_##S, NAME##_to_float, float_to_##NAME, f > v ? f : v)                                \
  ATOMIC_16_BITS(atomic_min_##S, NAME##_to_float, float_to_##NAME, f < v ? f : v)                                \
  ATOMIC_16_BITS(atomic_exch_##S, NAME##_to_float, float_to_##NAME, v)                                           \
  INLINED float atomic_cas_##S(uint16_t* p, float expected, float v) {                                           \
    uint16_t old = float_to_##NAME(expected);                                                                    \
    __atomic_compare_exchange_n(p, &old, float_to_##NAME(v), 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);             \
    return NAME##_to_float(old);                                                                                 \
  }
#define ATOMIC_INTEGERS(S, T, U)                                                               \
  ATOMIC_BY_EXCHANGE(T, T, atomic_max_##S, f > v ? f : v)                                      \
  ATOMIC_BY_EXCHANGE(T, T, atomic_min_##S, f < v ? f : v)                                      \
  ATOMIC_BY_EXCHANGE(T, T, atomic_umax_##S, (U)f > (U)v ? f : v)                               \
  ATOMIC_BY_EXCHANGE(T, T, atomic_umin_##S, (U)f < (U)v ? f : v)                               \
  INLINED T atomic_add_##S(T* p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL); }   \
  INLINED T atomic_and_##S(T* p, T v) { return __atomic_fetch_and(p, v, __ATOMIC_ACQ_REL); }   \
  INLINED T atomic_or_##S(T* p, T v) { return __atomic_fetch_or(p, v, __ATOMIC_ACQ_REL); }     \
  INLINED T atomic_xor_##S(T* p, T v) { return __atomic_fetch_xor(p, v, __ATOMIC_ACQ_REL); }   \
  INLINED T atomic_exch_##S(T* p, T v) { return __atomic_exchange_n(p, v, __ATOMIC_ACQ_REL); } \
  INLINED T atomic_cas_##S(T* p, T expected, T v) {                                            \
    __atomic_compare_exchange_n(p, &expected, v, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);       \
    return expected;                                                                           \
  }
#define ATOMIC_FLOATS(S, T, U)                                                            \
  ATOMIC_BY_EXCHANGE(T, U, atomic_fadd_##S, f + v)                                        \
  ATOMIC_BY_EXCHANGE(T, U, atomic_max_##S, f > v ? f : v)                                 \
  ATOMIC_BY_EXCHANGE(T, U, atomic_min_##S, f < v ? f : v)                                 \
  ATOMIC_BY_EXCHANGE(T, U, atomic_exch_##S, v)                                            \
  INLINED T atomic_cas_##S(T* p, T expected, T v) {                                       \
    U old, new;                                                                           \
    memcpy(&old, &expected, sizeof old);                                                  \
    memcpy(&new, &v, sizeof new);                                                         \
    __atomic_compare_exchange_n((U*)p, &old, new, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE); \
    memcpy(&expected, &old, sizeof old);                                                  \
    return expected;                                                                      \
  }
ATOMIC_INTEGERS(i8, int8_t, uint8_t)
ATOMIC_INTEGERS(i16, int16_t, uint16_t)
ATOMIC_INTEGERS(i32, int32_t, uint32_t)
ATOMIC_INTEGERS(i64, int64_t, uint64_t)
ATOMIC_FLOATS(f32, float, uint32_t)
ATOMIC_FLOATS(f64, double, uint64_t)
ATOMIC_SHORT_FLOATS(f16, half)
ATOMIC_SHORT_FLOATS(bf16, bfloat16)
