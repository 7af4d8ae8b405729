// Operators that write to their arguments: random numbers, the optimizer.
#include <algorithm>
#include <cmath>

#include "loop.h"
#include "tables.h"

namespace sample {
namespace {

using Context = isthmus_context*;
using In = const DLTensor*;
using Out = DLTensor*;

// ---- Random numbers: the i-th of a seed is a hash of both (splitmix64) ----

double uniform_at(uint64_t seed, int64_t i) {
  uint64_t x = seed + (static_cast<uint64_t>(i) + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return static_cast<double>((x ^ x >> 31) >> 11) * 0x1p-53;
}

// Box-Muller transform; never takes the logarithm of 0.
double normal_at(uint64_t seed, int64_t i) {
  constexpr double kTwoPi = 6.28318530717958647693;
  return std::sqrt(-2 * std::log(1 - uniform_at(seed, 2 * i))) *
         std::cos(kTwoPi * uniform_at(seed, 2 * i + 1));
}

template <typename Draw>
isthmus_status draw_each(Out self, Draw draw) {
  return all_types(self, [&](auto type) {
    using T = decltype(type);
    int64_t i = 0;
    Loop<1>(std::array<In, 1>{self}).each([&](const auto& at) {
      data<T>(self)[at[0]] = store<T>(draw(i++));
    });
    return ISTHMUS_OK;
  });
}

isthmus_status normal(Context context, Out self, double mean, double std) {
  return draw_each(self, [=](int64_t i) { return mean + std * normal_at(context->seed, i); });
}

// Draws from [from, to): a value rounded up to the end is replaced.
isthmus_status uniform(Context context, Out self, double from, double to) {
  return floats(self, [&](auto type) {
    using T = decltype(type);
    return draw_each(self, [=](int64_t i) {
      const double drawn = from + (to - from) * uniform_at(context->seed, i);
      return static_cast<double>(load(store<T>(drawn))) >= to ? from : drawn;
    });
  });
}

isthmus_status bernoulli(Context context, Out self, double p) {
  return draw_each(self, [=](int64_t i) -> double { return uniform_at(context->seed, i) < p; });
}

// ---- Optimizer; contiguous tensors ----

struct Adam {
  double lr, beta1, beta2, decay, eps, bias1, bias2, scale;
  bool amsgrad, maximize;
};

template <typename T>
void update(const Adam& adam, int64_t count, T* parameter, T* grad, T* average, T* square, T* largest) {
  for (int64_t i = 0; i < count; ++i) {
    double g = load(grad[i]) / adam.scale;
    if (adam.scale != 1) grad[i] = store<T>(g);
    if (adam.maximize) g = -g;
    const double m = load(average[i]) + (1 - adam.beta1) * (g - load(average[i]));
    const double v = adam.beta2 * load(square[i]) + (1 - adam.beta2) * g * g;
    double bound = v;  // propagates NaN
    if (adam.amsgrad && !std::isnan(v) && !(v > load(largest[i]))) bound = load(largest[i]);
    const double kept = load(parameter[i]) * (1 - adam.lr * adam.decay);
    const double step = adam.lr / adam.bias1 * m / (std::sqrt(bound) / std::sqrt(adam.bias2) + adam.eps);
    average[i] = store<T>(m);
    square[i] = store<T>(v);
    if (adam.amsgrad) largest[i] = store<T>(bound);
    parameter[i] = store<T>(kept - step);
  }
}

bool same_dtype(In a, In b) { return a->dtype.code == b->dtype.code && a->dtype.bits == b->dtype.bits; }

isthmus_status fused_adamw(Context, isthmus_list self, isthmus_list grads, isthmus_list averages,
                           isthmus_list squares, isthmus_list largest, isthmus_list steps, double lr,
                           double beta1, double beta2, double decay, double eps, bool amsgrad, bool maximize,
                           In grad_scale, In found_inf) {
  if (found_inf != nullptr && *data<float>(found_inf) != 0) return ISTHMUS_OK;
  const double scale = grad_scale != nullptr ? *data<float>(grad_scale) : 1;
  for (int64_t i = 0; i < self.size; ++i) {
    Out parameter = isthmus_list_output(self, i), grad = isthmus_list_output(grads, i);
    Out average = isthmus_list_output(averages, i), square = isthmus_list_output(squares, i);
    Out most = amsgrad ? isthmus_list_output(largest, i) : nullptr;
    if (!same_dtype(parameter, grad) || !same_dtype(parameter, average)) return ISTHMUS_UNSUPPORTED;
    const double step = *data<float>(isthmus_list_tensor(steps, i));
    const Adam adam{lr,    beta1,   beta2,   decay, eps, 1 - std::pow(beta1, step), 1 - std::pow(beta2, step),
                    scale, amsgrad, maximize};
    const isthmus_status status = floats(parameter, [&](auto type) {
      using T = decltype(type);
      update<T>(adam, elements(parameter), data<T>(parameter), data<T>(grad), data<T>(average),
                data<T>(square), amsgrad ? data<T>(most) : nullptr);
      return ISTHMUS_OK;
    });
    if (status != ISTHMUS_OK) return status;
  }
  return ISTHMUS_OK;
}

}  // namespace

const std::vector<isthmus_operator>& update_operators() {
  static const std::vector<isthmus_operator> operators = {
      ISTHMUS_OPERATOR(aten_normal_, normal, kFloats, kStrided),
      ISTHMUS_OPERATOR(aten_uniform_, uniform, kFloats, kStrided),
      ISTHMUS_OPERATOR(aten_bernoulli__float, bernoulli, kAll, kStrided),
      ISTHMUS_OPERATOR(aten__fused_adamw_, fused_adamw, kFloats, kContiguous),
  };
  return operators;
}

}  // namespace sample
