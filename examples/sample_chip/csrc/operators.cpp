// Four operators of float32 and bfloat16 tensors. They compute in double and round the result once.
// kernels.py has the others.
#define ISTHMUS_OPERATORS_IMPLEMENTATION
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "isthmus_ops.h"

namespace {

using Context = isthmus_context*;
using In = const DLTensor*;
using Out = DLTensor*;

// ---- Elements ----

struct BFloat16 {
  uint16_t bits;
};

double load(float value) { return value; }

double load(BFloat16 value) {
  const uint32_t bits = uint32_t{value.bits} << 16;
  float wide;
  std::memcpy(&wide, &bits, sizeof(wide));
  return wide;
}

void store(float& to, double value) { to = static_cast<float>(value); }

// To nearest even; adding to a NaN could make it infinite.
void store(BFloat16& to, double value) {
  const float narrow = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &narrow, sizeof(bits));
  to.bits =
      static_cast<uint16_t>((value != value ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Calls body with a null pointer to the element type.
template <typename Body>
isthmus_status for_dtype_of(In tensor, Body&& body) {
  if (tensor->dtype.code == kDLFloat && tensor->dtype.bits == 32) return body(static_cast<float*>(nullptr));
  if (tensor->dtype.code == kDLBfloat) return body(static_cast<BFloat16*>(nullptr));
  return ISTHMUS_UNSUPPORTED;
}

// ---- Kernels ----

// Calls body with the element offsets of all tensors for each index of the first, to which the others
// broadcast.
template <size_t N, typename Body>
void for_each_index(const std::array<In, N>& tensors, Body&& body) {
  const int ndim = tensors[0]->ndim;
  int64_t count = 1;
  for (int d = 0; d < ndim; ++d) count *= tensors[0]->shape[d];
  for (int64_t i = 0; i < count; ++i) {
    std::array<int64_t, N> at{};
    int64_t rest = i;
    for (int d = ndim - 1; d >= 0; --d) {
      const int64_t index = rest % tensors[0]->shape[d];
      rest /= tensors[0]->shape[d];
      for (size_t k = 0; k < N; ++k) {
        const int own = d - (ndim - tensors[k]->ndim);
        if (own >= 0 && tensors[k]->shape[own] != 1) at[k] += index * tensors[k]->strides[own];
      }
    }
    body(at);
  }
}

template <typename Function>
isthmus_status binary(In self, In other, Out out, Function function) {
  return for_dtype_of(out, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const auto *a = static_cast<const T*>(self->data), *b = static_cast<const T*>(other->data);
    for_each_index<3>({out, self, other}, [&](const auto& at) {
      store(static_cast<T*>(out->data)[at[0]], function(load(a[at[1]]), load(b[at[2]])));
    });
    return ISTHMUS_OK;
  });
}

isthmus_status add(Context, In self, In other, isthmus_scalar alpha, Out out) {
  return binary(self, other, out, [=](double a, double b) { return a + alpha.as_double * b; });
}

isthmus_status mul(Context, In self, In other, Out out) {
  return binary(self, other, out, [](double a, double b) { return a * b; });
}

// Propagates NaN.
isthmus_status relu(Context, In self, Out out) {
  return binary(self, self, out, [](double x, double) { return x < 0 ? 0 : x; });
}

isthmus_status mm(Context, In self, In other, Out out) {
  return for_dtype_of(out, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const auto at = [](In matrix, int64_t i, int64_t j) -> T& {
      return static_cast<T*>(matrix->data)[i * matrix->strides[0] + j * matrix->strides[1]];
    };
    for (int64_t i = 0; i < out->shape[0]; ++i) {
      for (int64_t j = 0; j < out->shape[1]; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < self->shape[1]; ++k) sum += load(at(self, i, k)) * load(at(other, k, j));
        store(at(out, i, j), sum);
      }
    }
    return ISTHMUS_OK;
  });
}

// ---- The table: dtypes and what a kernel accepts beyond contiguous tensors in separate memory ----

constexpr uint64_t kDtypes = ISTHMUS_DTYPE(FLOAT32) | ISTHMUS_DTYPE(BFLOAT16);
constexpr uint32_t kStrided = ISTHMUS_OPERATOR_HOST | ISTHMUS_OPERATOR_STRIDED;  // in the calling thread
constexpr uint32_t kPointwise = kStrided | ISTHMUS_OPERATOR_IN_PLACE;

const isthmus_operator operators[] = {
    ISTHMUS_OPERATOR(aten_add_Tensor, add, kDtypes, kPointwise),
    ISTHMUS_OPERATOR(aten_mul_Tensor, mul, kDtypes, kPointwise),
    ISTHMUS_OPERATOR(aten_relu, relu, kDtypes, kPointwise),
    ISTHMUS_OPERATOR(aten_mm, mm, kDtypes, kStrided),
};

}  // namespace

extern "C" const isthmus_operator_library* isthmus_operators_get(uint32_t version) {
  static const isthmus_operator_library library = {sizeof(isthmus_operator_library),
                                                   ISTHMUS_OPERATORS_VERSION,
                                                   "sample",
                                                   "Four operators of the sample chip, in C++",
                                                   sizeof(isthmus_operator),
                                                   sizeof(operators) / sizeof(operators[0]),
                                                   operators};
  return version >> 16 == ISTHMUS_OPERATORS_VERSION_MAJOR ? &library : nullptr;
}
