// Elementwise operators.
#include <algorithm>
#include <cmath>
#include <limits>

#include "loop.h"
#include "tables.h"

namespace sample {
namespace {

using Context = isthmus_context*;
using In = const DLTensor*;
using Out = DLTensor*;

constexpr double kSqrtHalf = 0.70710678118654752440;
constexpr double kInverseSqrtTwoPi = 0.39894228040143267794;
constexpr double kGeluCubic = 0.044715;
constexpr double kSqrtTwoOverPi = 0.79788456080286535588;

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

// ---- One input ----

template <typename Function>
isthmus_status unary(In self, Out out, Function function) {
  return floats(out, [&](auto type) {
    using T = decltype(type);
    return map<T, T>(out, {self}, function);
  });
}

// Functions of the C library, computed in double for every dtype.
#define SAMPLE_UNARY(name, expression)                                      \
  isthmus_status name(Context, In self, Out out) {                          \
    return unary(self, out, [](double x) -> double { return expression; }); \
  }
SAMPLE_UNARY(exp_, std::exp(x))
SAMPLE_UNARY(log_, std::log(x))
SAMPLE_UNARY(sqrt_, std::sqrt(x))
SAMPLE_UNARY(rsqrt_, 1 / std::sqrt(x))
SAMPLE_UNARY(reciprocal_, 1 / x)
SAMPLE_UNARY(sin_, std::sin(x))
SAMPLE_UNARY(cos_, std::cos(x))
SAMPLE_UNARY(tanh_, std::tanh(x))
SAMPLE_UNARY(erf_, std::erf(x))
SAMPLE_UNARY(sigmoid_, sigmoid_of(x))
SAMPLE_UNARY(silu_, x / (1 + std::exp(-x)))
#undef SAMPLE_UNARY

double gelu_of(double x, bool by_tanh) {
  if (!by_tanh) return x * 0.5 * std::erfc(-x * kSqrtHalf);
  return 0.5 * x * (1 + std::tanh(kSqrtTwoOverPi * (x + kGeluCubic * x * x * x)));
}

double gelu_slope(double x, bool by_tanh) {
  if (!by_tanh) return 0.5 * std::erfc(-x * kSqrtHalf) + x * kInverseSqrtTwoPi * std::exp(-0.5 * x * x);
  const double t = std::tanh(kSqrtTwoOverPi * (x + kGeluCubic * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kSqrtTwoOverPi * (1 + 3 * kGeluCubic * x * x);
}

isthmus_status gelu(Context, In self, const char* approximate, Out out) {
  const bool by_tanh = std::strcmp(approximate, "tanh") == 0;
  return unary(self, out, [=](double x) { return gelu_of(x, by_tanh); });
}

isthmus_status neg(Context, In self, Out out) {
  return numbers(out, [&](auto type) {
    using T = decltype(type);
    return map<T, T>(out, {self}, [](auto x) { return -x; });
  });
}

isthmus_status abs_(Context, In self, Out out) {
  return numbers(out, [&](auto type) {
    using T = decltype(type);
    return map<T, T>(out, {self}, [](auto x) { return std::abs(x); });
  });
}

// Propagates NaN.
isthmus_status relu(Context, In self, Out out) {
  return numbers(out, [&](auto type) {
    using T = decltype(type);
    return map<T, T>(out, {self}, [](auto x) { return x < 0 ? decltype(x){0} : x; });
  });
}

isthmus_status bitwise_not(Context, In self, Out out) {
  return among<int64_t, bool>(out, [&](auto type) {
    using T = decltype(type);
    return map<T, T>(out, {self}, [](int64_t x) -> int64_t { return std::is_same_v<T, bool> ? !x : ~x; });
  });
}

template <typename Value>
Value limited(Value x, Value low, Value high) {
  return x != x ? x : std::min(std::max(x, low), high);
}

isthmus_status clamp(Context, In self, const isthmus_scalar* low, const isthmus_scalar* high, Out out) {
  return numbers(out, [&](auto type) {
    using T = decltype(type);
    using Value = Compute<T>;
    using Limits = std::numeric_limits<Value>;
    const Value least = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    const Value most = Limits::has_infinity ? Limits::infinity() : Limits::max();
    const Value from = low != nullptr ? number<Value>(*low) : least;
    const Value to = high != nullptr ? number<Value>(*high) : most;
    return map<T, T>(out, {self}, [=](Value x) { return limited(x, from, to); });
  });
}

isthmus_status pow_scalar(Context, In self, isthmus_scalar exponent, Out out) {
  const double power = exponent.as_double;
  // PyTorch's power of 0.5 is the square root: they differ for -0 and minus infinity.
  if (power == 0.5) return unary(self, out, [](double x) { return std::sqrt(x); });
  return unary(self, out, [=](double x) { return std::pow(x, power); });
}

// ---- Two and three inputs ----

// The factor of the second operand: 1 for most calls.
isthmus_status add(Context, In self, In other, isthmus_scalar alpha, Out out) {
  return all_types(out, [&](auto type) {
    using T = decltype(type);
    const auto factor = number<Compute<T>>(alpha);
    return map<T, T, T>(out, {self, other}, [=](auto a, auto b) { return a + factor * b; });
  });
}

isthmus_status sub(Context, In self, In other, isthmus_scalar alpha, Out out) {
  return numbers(out, [&](auto type) {
    using T = decltype(type);
    const auto factor = number<Compute<T>>(alpha);
    return map<T, T, T>(out, {self, other}, [=](auto a, auto b) { return a - factor * b; });
  });
}

isthmus_status mul(Context, In self, In other, Out out) {
  return all_types(out, [&](auto type) {
    using T = decltype(type);
    return map<T, T, T>(out, {self, other}, [](auto a, auto b) { return a * b; });
  });
}

isthmus_status div(Context, In self, In other, Out out) {
  return floats(out, [&](auto type) {
    using T = decltype(type);
    return map<T, T, T>(out, {self, other}, [](auto a, auto b) { return a / b; });
  });
}

isthmus_status pow_tensor(Context, In self, In other, Out out) {
  return floats(out, [&](auto type) {
    using T = decltype(type);
    return map<T, T, T>(out, {self, other}, [](double a, double b) { return std::pow(a, b); });
  });
}

isthmus_status maximum(Context, In self, In other, Out out) {
  return numbers(out, [&](auto type) {
    using T = decltype(type);
    return map<T, T, T>(out, {self, other}, [](auto a, auto b) { return a != a || a > b ? a : b; });
  });
}

isthmus_status minimum(Context, In self, In other, Out out) {
  return numbers(out, [&](auto type) {
    using T = decltype(type);
    return map<T, T, T>(out, {self, other}, [](auto a, auto b) { return a != a || a < b ? a : b; });
  });
}

#define SAMPLE_BITWISE(name, sign)                                                            \
  isthmus_status name(Context, In self, In other, Out out) {                                  \
    return among<int64_t, bool>(out, [&](auto type) {                                         \
      using T = decltype(type);                                                               \
      return map<T, T, T>(out, {self, other}, [](int64_t a, int64_t b) { return a sign b; }); \
    });                                                                                       \
  }
SAMPLE_BITWISE(bitwise_and, &)
SAMPLE_BITWISE(bitwise_or, |)
#undef SAMPLE_BITWISE

isthmus_status where(Context, In condition, In self, In other, Out out) {
  return all_types(out, [&](auto type) {
    using T = decltype(type);
    return map<T, bool, T, T>(out, {condition, self, other},
                              [](bool c, auto a, auto b) { return c ? a : b; });
  });
}

isthmus_status masked_fill(Context, In self, In mask, isthmus_scalar value, Out out) {
  return all_types(out, [&](auto type) {
    using T = decltype(type);
    const auto filled = number<Compute<T>>(value);
    return map<T, T, bool>(out, {self, mask}, [=](auto x, bool masked) { return masked ? filled : x; });
  });
}

isthmus_status addcmul(Context, In self, In first, In second, isthmus_scalar value, Out out) {
  const double factor = value.as_double;
  return floats(out, [&](auto type) {
    using T = decltype(type);
    return map<T, T, T, T>(out, {self, first, second},
                           [=](double x, double a, double b) { return x + factor * a * b; });
  });
}

isthmus_status addcdiv(Context, In self, In first, In second, isthmus_scalar value, Out out) {
  const double factor = value.as_double;
  return floats(out, [&](auto type) {
    using T = decltype(type);
    return map<T, T, T, T>(out, {self, first, second},
                           [=](double x, double a, double b) { return x + factor * a / b; });
  });
}

isthmus_status lerp(Context, In self, In end, isthmus_scalar weight, Out out) {
  const double w = weight.as_double;
  return floats(out, [&](auto type) {
    using T = decltype(type);
    return map<T, T, T>(out, {self, end}, [=](double a, double b) { return a + w * (b - a); });
  });
}

// ---- Gradients ----

template <typename Function>
isthmus_status gradient(In grad, In saved, Out out, Function function) {
  return floats(out, [&](auto type) {
    using T = decltype(type);
    return map<T, T, T>(out, {grad, saved}, function);
  });
}

isthmus_status silu_backward(Context, In grad, In self, Out out) {
  return gradient(grad, self, out, [](double g, double x) {
    const double s = sigmoid_of(x);
    return g * s * (1 + x * (1 - s));
  });
}

isthmus_status gelu_backward(Context, In grad, In self, const char* approximate, Out out) {
  const bool by_tanh = std::strcmp(approximate, "tanh") == 0;
  return gradient(grad, self, out, [=](double g, double x) { return g * gelu_slope(x, by_tanh); });
}

isthmus_status tanh_backward(Context, In grad, In output, Out out) {
  return gradient(grad, output, out, [](double g, double y) { return g * (1 - y * y); });
}

isthmus_status sigmoid_backward(Context, In grad, In output, Out out) {
  return gradient(grad, output, out, [](double g, double y) { return g * y * (1 - y); });
}

isthmus_status threshold_backward(Context, In grad, In self, isthmus_scalar threshold, Out out) {
  const double limit = threshold.as_double;
  return gradient(grad, self, out, [=](double g, double x) { return x <= limit ? 0.0 : g; });
}

}  // namespace

const std::vector<isthmus_operator>& pointwise_operators() {
  static const std::vector<isthmus_operator> operators = {
      ISTHMUS_OPERATOR(aten_exp, exp_, kFloats, kPointwise),
      ISTHMUS_OPERATOR(aten_log, log_, kFloats, kPointwise),
      ISTHMUS_OPERATOR(aten_sqrt, sqrt_, kFloats, kPointwise),
      ISTHMUS_OPERATOR(aten_rsqrt, rsqrt_, kFloats, kPointwise),
      ISTHMUS_OPERATOR(aten_reciprocal, reciprocal_, kFloats, kPointwise),
      ISTHMUS_OPERATOR(aten_sin, sin_, kFloats, kPointwise),
      ISTHMUS_OPERATOR(aten_cos, cos_, kFloats, kPointwise),
      ISTHMUS_OPERATOR(aten_tanh, tanh_, kFloats, kPointwise),
      ISTHMUS_OPERATOR(aten_erf, erf_, kFloats, kPointwise),
      ISTHMUS_OPERATOR(aten_sigmoid, sigmoid_, kFloats, kPointwise),
      ISTHMUS_OPERATOR(aten_silu, silu_, kFloats, kPointwise),
      ISTHMUS_OPERATOR(aten_gelu, gelu, kFloats, kPointwise),
      ISTHMUS_OPERATOR(aten_neg, neg, kNumbers, kPointwise),
      ISTHMUS_OPERATOR(aten_abs, abs_, kNumbers, kPointwise),
      ISTHMUS_OPERATOR(aten_relu, relu, kNumbers, kPointwise),
      ISTHMUS_OPERATOR(aten_bitwise_not, bitwise_not, ISTHMUS_DTYPE(INT64) | ISTHMUS_DTYPE(BOOL), kPointwise),
      ISTHMUS_OPERATOR(aten_clamp, clamp, kNumbers, kPointwise),
      ISTHMUS_OPERATOR(aten_pow_Tensor_Scalar, pow_scalar, kFloats, kPointwise),
      ISTHMUS_OPERATOR(aten_add_Tensor, add, kAll, kPointwise),
      ISTHMUS_OPERATOR(aten_sub_Tensor, sub, kNumbers, kPointwise),
      ISTHMUS_OPERATOR(aten_mul_Tensor, mul, kAll, kPointwise),
      ISTHMUS_OPERATOR(aten_div_Tensor, div, kFloats, kPointwise),
      ISTHMUS_OPERATOR(aten_pow_Tensor_Tensor, pow_tensor, kFloats, kPointwise),
      ISTHMUS_OPERATOR(aten_maximum, maximum, kNumbers, kPointwise),
      ISTHMUS_OPERATOR(aten_minimum, minimum, kNumbers, kPointwise),
      ISTHMUS_OPERATOR(aten_bitwise_and_Tensor, bitwise_and, ISTHMUS_DTYPE(INT64) | ISTHMUS_DTYPE(BOOL),
                       kPointwise),
      ISTHMUS_OPERATOR(aten_bitwise_or_Tensor, bitwise_or, ISTHMUS_DTYPE(INT64) | ISTHMUS_DTYPE(BOOL),
                       kPointwise),
      ISTHMUS_OPERATOR(aten_where_self, where, kAll, kPointwise),
      ISTHMUS_OPERATOR(aten_masked_fill_Scalar, masked_fill, kAll, kPointwise),
      ISTHMUS_OPERATOR(aten_addcmul, addcmul, kFloats, kPointwise),
      ISTHMUS_OPERATOR(aten_addcdiv, addcdiv, kFloats, kPointwise),
      ISTHMUS_OPERATOR(aten_lerp_Scalar, lerp, kFloats, kPointwise),
      ISTHMUS_OPERATOR(aten_silu_backward, silu_backward, kFloats, kPointwise),
      ISTHMUS_OPERATOR(aten_gelu_backward, gelu_backward, kFloats, kPointwise),
      ISTHMUS_OPERATOR(aten_tanh_backward, tanh_backward, kFloats, kPointwise),
      ISTHMUS_OPERATOR(aten_sigmoid_backward, sigmoid_backward, kFloats, kPointwise),
      ISTHMUS_OPERATOR(aten_threshold_backward, threshold_backward, kFloats, kPointwise),
  };
  return operators;
}

}  // namespace sample
