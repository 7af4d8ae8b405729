/* What common.h, atomics.h and bfloat16.h are to the host, in OpenCL C 1.2 and later. */
typedef char int8_t;
typedef uchar uint8_t;
typedef short int16_t;
typedef ushort uint16_t;
typedef int int32_t;
typedef uint uint32_t;
typedef long int64_t;
typedef ulong uint64_t;
#define _Bool bool
#define INT64_C(x) x##L
#define UINT64_C(x) x##UL
#define INT8_MIN SCHAR_MIN
#define INT8_MAX SCHAR_MAX
#define INT16_MIN SHRT_MIN
#define INT16_MAX SHRT_MAX
#define INT32_MIN INT_MIN
#define INT32_MAX INT_MAX
#define INT64_MIN LONG_MIN
#define INT64_MAX LONG_MAX
#define INLINED static inline __attribute__((always_inline))
#define NOT_INLINED __attribute__((noinline))
#define GLOBAL __global
#define INDEPENDENT
#define ALIGNED __attribute__((aligned(64)))

/* as_float and as_double are the language's. */
#define float_bits as_uint
#define double_bits as_ulong
#define __builtin_fmaf fma
#define __builtin_fma fma
#define __builtin_signbit signbit
#define __builtin_popcount popcount
#define __builtin_popcountll popcount
#define __builtin_clz clz
#define __builtin_clzll clz

/* Arrays of a program. */
#define memcpy(to, from, bytes) copy_bytes((uchar*)(to), (const uchar*)(from), bytes)
#define memset(to, value, bytes) fill_bytes((uchar*)(to), value, bytes)
INLINED void copy_bytes(uchar* to, const uchar* from, ulong bytes) {
  for (ulong i = 0; i < bytes; i++) to[i] = from[i];
}
INLINED void fill_bytes(uchar* to, uchar value, ulong bytes) {
  for (ulong i = 0; i < bytes; i++) to[i] = value;
}

typedef float16 vector16;
#define LOAD16(p) vload16(0, p)
#define STORE16(p, v) vstore16(v, 0, p)
/* bfloat16 numbers become float: products are exact. */
INLINED void product_bfloat16(const int m, const int n, const int k, const short* a, const short* b,
                              float* c) {
  for (int i = 0; i < m; i++)
    for (int l = 0; l < k; l++) {
      const float x = as_float((uint)(ushort)a[i * k + l] << 16);
      for (int j = 0; j < n; j++) c[i * n + j] += x * as_float((uint)(ushort)b[l * n + j] << 16);
    }
}

/* Atomic operations are relaxed: fences order what is around them. */
#define ORDERED(T, CALL)                                 \
  mem_fence(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE); \
  T old_value = (CALL);                                  \
  mem_fence(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE); \
  return old_value;
#define ATOMIC_BY_EXCHANGE(T, BITS, PREFIX, AS, AS_BITS, NAME, RESULT)         \
  INLINED T NAME(GLOBAL T* p, T v) {                                           \
    BITS old = *(volatile GLOBAL BITS*)p, seen;                                \
    T f;                                                                       \
    mem_fence(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE);                     \
    for (;;) {                                                                 \
      f = AS(old);                                                             \
      seen = PREFIX##_cmpxchg((volatile GLOBAL BITS*)p, old, AS_BITS(RESULT)); \
      if (seen == old) break;                                                  \
      old = seen;                                                              \
    }                                                                          \
    mem_fence(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE);                     \
    return f;                                                                  \
  }
#define ATOMIC_INTEGERS(S, T, U, PREFIX)                                                                     \
  INLINED T atomic_add_##S(GLOBAL T* p, T v){                                                                \
      ORDERED(T, PREFIX##_add((volatile GLOBAL T*)p, v))} INLINED T atomic_and_##S(GLOBAL T* p, T v){        \
      ORDERED(T, PREFIX##_and((volatile GLOBAL T*)p, v))} INLINED T atomic_or_##S(GLOBAL T* p, T v){         \
      ORDERED(T, PREFIX##_or((volatile GLOBAL T*)p, v))} INLINED T atomic_xor_##S(GLOBAL T* p, T v){         \
      ORDERED(T, PREFIX##_xor((volatile GLOBAL T*)p, v))} INLINED T atomic_max_##S(GLOBAL T* p, T v){        \
      ORDERED(T, PREFIX##_max((volatile GLOBAL T*)p, v))} INLINED T atomic_min_##S(GLOBAL T* p, T v){        \
      ORDERED(T, PREFIX##_min((volatile GLOBAL T*)p, v))} INLINED T atomic_umax_##S(GLOBAL T* p, T v){       \
      ORDERED(T, (T)PREFIX##_max((volatile GLOBAL U*)p, (U)v))} INLINED T atomic_umin_##S(GLOBAL T* p, T v){ \
      ORDERED(T, (T)PREFIX##_min((volatile GLOBAL U*)p, (U)v))} INLINED T atomic_exch_##S(GLOBAL T* p, T v){ \
      ORDERED(T, PREFIX##_xchg((volatile GLOBAL T*)p, v))} INLINED T atomic_cas_##S(GLOBAL T* p, T expected, \
                                                                                    T v) {                   \
    ORDERED(T, PREFIX##_cmpxchg((volatile GLOBAL T*)p, expected, v))                                         \
  }
#define ATOMIC_FLOATS(S, T, U, PREFIX, AS, AS_BITS)                                        \
  ATOMIC_BY_EXCHANGE(T, U, PREFIX, AS, AS_BITS, atomic_fadd_##S, f + v)                    \
  ATOMIC_BY_EXCHANGE(T, U, PREFIX, AS, AS_BITS, atomic_max_##S, f > v ? f : v)             \
  ATOMIC_BY_EXCHANGE(T, U, PREFIX, AS, AS_BITS, atomic_min_##S, f < v ? f : v)             \
  ATOMIC_BY_EXCHANGE(T, U, PREFIX, AS, AS_BITS, atomic_exch_##S, v)                        \
  INLINED T atomic_cas_##S(GLOBAL T* p, T expected, T v) {                                 \
    ORDERED(T, AS(PREFIX##_cmpxchg((volatile GLOBAL U*)p, AS_BITS(expected), AS_BITS(v)))) \
  }
ATOMIC_INTEGERS(i32, int, uint, atomic)
ATOMIC_FLOATS(f32, float, uint, atomic, as_float, as_uint)
#if defined(cl_khr_int64_base_atomics) && defined(cl_khr_int64_extended_atomics)
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#pragma OPENCL EXTENSION cl_khr_int64_extended_atomics : enable
ATOMIC_INTEGERS(i64, long, ulong, atom)
ATOMIC_FLOATS(f64, double, ulong, atom, as_double, as_ulong)
#endif
