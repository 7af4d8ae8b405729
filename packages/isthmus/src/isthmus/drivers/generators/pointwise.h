/* What generated pointwise kernels share: loads, stores, roundings, and the loop over strided tensors. */
#include <math.h>
#include <string.h>

#include "operators.h"

#define LOAD_float64(p) (*(const double*)(p))
#define LOAD_float32(p) ((double)*(const float*)(p))
#define LOAD_float16(p) ((double)*(const _Float16*)(p))
#define LOAD_bfloat16(p) ((double)bfloat16_to_float(*(const uint16_t*)(p)))
#define LOAD_int8(p) ((int64_t)*(const int8_t*)(p))
#define LOAD_uint8(p) ((int64_t)*(const uint8_t*)(p))
#define LOAD_int16(p) ((int64_t)*(const int16_t*)(p))
#define LOAD_int32(p) ((int64_t)*(const int32_t*)(p))
#define LOAD_int64(p) (*(const int64_t*)(p))
#define LOAD_bool(p) ((int64_t)(*(const uint8_t*)(p) != 0))

#define STORE_float64(p, v) (*(double*)(p) = (v))
#define STORE_float32(p, v) (*(float*)(p) = (float)(v))
#define STORE_float16(p, v) (*(_Float16*)(p) = (_Float16)(v))
#define STORE_bfloat16(p, v) (*(uint16_t*)(p) = float_to_bfloat16((float)(v)))
#define STORE_int8(p, v) (*(int8_t*)(p) = (int8_t)(v))
#define STORE_uint8(p, v) (*(uint8_t*)(p) = (uint8_t)(v))
#define STORE_int16(p, v) (*(int16_t*)(p) = (int16_t)(v))
#define STORE_int32(p, v) (*(int32_t*)(p) = (int32_t)(v))
#define STORE_int64(p, v) (*(int64_t*)(p) = (v))
#define STORE_bool(p, v) (*(uint8_t*)(p) = (uint8_t)(v))

#define ROUND_float64(v) ((double)(v))
#define ROUND_float32(v) ((double)(float)(v))
#define ROUND_float16(v) ((double)(_Float16)(v))
#define ROUND_bfloat16(v) ((double)bfloat16_to_float(float_to_bfloat16((float)(v))))
#define ROUND_int8(v) ((int64_t)(int8_t)(v))
#define ROUND_uint8(v) ((int64_t)(uint8_t)(v))
#define ROUND_int16(v) ((int64_t)(int16_t)(v))
#define ROUND_int32(v) ((int64_t)(int32_t)(v))
#define ROUND_int64(v) ((int64_t)(v))

static inline float bfloat16_to_float(uint16_t bits) {
  const uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

static inline uint16_t float_to_bfloat16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (value != value) return (uint16_t)((bits >> 16) | 0x40); /* stays NaN */
  return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

static inline double abs_f(double x) { return fabs(x); }
static inline int64_t abs_i(int64_t x) { return x < 0 ? -x : x; }
/* NaN if either is; the first of two equal numbers, so that a clamp keeps the sign of a zero. */
static inline double maximum_f(double x, double y) { return y > x || y != y ? y : x; }
static inline double minimum_f(double x, double y) { return y < x || y != y ? y : x; }
static inline int64_t maximum_i(int64_t x, int64_t y) { return x > y ? x : y; }
static inline int64_t minimum_i(int64_t x, int64_t y) { return x < y ? x : y; }

#define MAX_OPERANDS 64
#define MAX_DIMS 64

typedef struct {
  int dims, operands;
  int64_t size[MAX_DIMS];
  int64_t stride[MAX_DIMS][MAX_OPERANDS]; /* bytes; the last dimension is the innermost loop */
  char* data[MAX_OPERANDS];
} space_t;

/* Dimension d of the first output, of size n, as the innermost so far, or as part of the previous one. */
static inline void add_dimension(space_t* space, int64_t n, const int64_t* stride) {
  int merges = space->dims > 0;
  for (int k = 0; merges && k < space->operands; ++k)
    merges = space->stride[space->dims - 1][k] == stride[k] * n;
  const int d = merges ? space->dims - 1 : space->dims++;
  space->size[d] = merges ? space->size[d] * n : n;
  for (int k = 0; k < space->operands; ++k) space->stride[d][k] = stride[k];
}

/* The loops over the operands: dimensions in the order of the first output's strides, merged where possible.
 * Returns 0 if there is nothing to compute. */
static inline int make_space(space_t* space, const TVMFFIAny* args, int inputs, int outputs, const int* width) {
  const DLTensor* tensors[MAX_OPERANDS];
  for (int k = 0; k < inputs + outputs; ++k) {
    tensors[k] = (const DLTensor*)args[1 + k].v_ptr;
    space->data[k] = (char*)tensors[k]->data;
  }
  space->dims = 0;
  space->operands = inputs + outputs;
  const DLTensor* out = tensors[inputs];
  int order[MAX_DIMS];
  for (int d = 0; d < out->ndim; ++d) {
    int at = d;
    for (; at > 0 && out->strides[order[at - 1]] < out->strides[d]; --at) order[at] = order[at - 1];
    order[at] = d;
    if (out->shape[d] == 0) return 0;
  }
  for (int i = 0; i < out->ndim; ++i) {
    const int d = order[i];
    if (out->shape[d] == 1) continue;
    int64_t stride[MAX_OPERANDS];
    for (int k = 0; k < space->operands; ++k) {
      const int own = d - (out->ndim - tensors[k]->ndim);
      stride[k] = own < 0 || tensors[k]->shape[own] == 1 ? 0 : tensors[k]->strides[own] * width[k];
    }
    add_dimension(space, out->shape[d], stride);
  }
  if (space->dims == 0) {
    const int64_t none[MAX_OPERANDS] = {0};
    add_dimension(space, 1, none);
  }
  return 1;
}

/* Moves to the next innermost loop; returns 0 after the last. */
static inline int next_row(space_t* space, int64_t* index) {
  for (int d = space->dims - 2; d >= 0; --d) {
    for (int k = 0; k < space->operands; ++k) space->data[k] += space->stride[d][k];
    if (++index[d] < space->size[d]) return 1;
    for (int k = 0; k < space->operands; ++k) space->data[k] -= space->stride[d][k] * space->size[d];
    index[d] = 0;
  }
  return 0;
}

#define UNPACK(...) __VA_ARGS__
/* A kernel: body computes element j from p[k] + j * s[k], k counting inputs, then outputs. Rows whose elements
 * are adjacent get a loop of their own, which the compiler vectorizes. */
#define POINTWISE(name, inputs, outputs, widths, ...)                                                     \
  static inline __attribute__((always_inline)) void name##_row(char* const* p, const int64_t* s, int64_t n) { \
    _Pragma("GCC ivdep") for (int64_t j = 0; j < n; ++j) __VA_ARGS__                                                           \
  }                                                                                                       \
  int name(void* handle, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {                       \
    static const int width[] = {UNPACK widths};                                                           \
    static const int64_t dense[] = {UNPACK widths};                                                       \
    space_t space;                                                                                        \
    result->type_index = kTVMFFINone;                                                                     \
    if (!make_space(&space, args, inputs, outputs, width)) return 0;                                      \
    const int64_t* stride = space.stride[space.dims - 1];                                                 \
    const int64_t n = space.size[space.dims - 1];                                                         \
    const int adjacent = memcmp(stride, dense, sizeof dense) == 0;                                        \
    int64_t index[MAX_DIMS] = {0};                                                                        \
    do {                                                                                                  \
      if (adjacent)                                                                                       \
        name##_row(space.data, dense, n);                                                                 \
      else                                                                                                \
        name##_row(space.data, stride, n);                                                                \
    } while (next_row(&space, index));                                                                    \
    return 0;                                                                                             \
  }
