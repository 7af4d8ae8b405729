// Softmax, layer norm, losses, and their gradients. Sums are in double.
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

constexpr double kInfinity = std::numeric_limits<double>::infinity();

enum Reduction { kNone = 0, kMean = 1, kSum = 2 };  // PyTorch's values

// ---- Softmax ----

// Largest of a line, and the sum of exp(x - largest).
struct Exponentials {
  double largest = -kInfinity, sum = 0;
};

template <typename T>
Exponentials exponentials(const T* line, int64_t size, int64_t step) {
  Exponentials found;
  for (int64_t i = 0; i < size; ++i) {
    const double x = load(line[i * step]);
    if (x > found.largest || std::isnan(x)) found.largest = x;  // a NaN stays: nothing is larger
  }
  for (int64_t i = 0; i < size; ++i) found.sum += std::exp(load(line[i * step]) - found.largest);
  return found;
}

// finish(x, exponentials of its line) for each x.
template <typename Finish>
isthmus_status by_lines(In self, int64_t dim, Out out, Finish finish) {
  return floats(self, [&](auto type) {
    using T = decltype(type);
    return floats(out, [&](auto result) {
      using Result = decltype(result);
      lines<2>({out, self}, dim, [&](const auto& at, int64_t size, const auto& step) {
        const T* from = data<T>(self) + at[1];
        Result* to = data<Result>(out) + at[0];
        const Exponentials found = exponentials(from, size, step[1]);
        for (int64_t i = 0; i < size; ++i) {
          to[i * step[0]] = store<Result>(finish(load(from[i * step[1]]), found));
        }
      });
      return ISTHMUS_OK;
    });
  });
}

isthmus_status softmax(Context, In self, int64_t dim, bool /*half_to_float*/, Out out) {
  return by_lines(self, dim, out,
                  [](double x, const Exponentials& e) { return std::exp(x - e.largest) / e.sum; });
}

isthmus_status log_softmax(Context, In self, int64_t dim, bool /*half_to_float*/, Out out) {
  return by_lines(self, dim, out,
                  [](double x, const Exponentials& e) { return x - e.largest - std::log(e.sum); });
}

// A line of minus infinities gives zeros.
isthmus_status safe_softmax(Context, In self, int64_t dim, Out out) {
  return by_lines(self, dim, out, [](double x, const Exponentials& e) {
    return e.largest == -kInfinity ? 0.0 : std::exp(x - e.largest) / e.sum;
  });
}

// finish(grad, output, sum of summand(grad, output) over the line).
template <typename Summand, typename Finish>
isthmus_status gradient_by_lines(In grad, In output, int64_t dim, Out out, Summand summand, Finish finish) {
  if (grad->dtype.code != output->dtype.code || grad->dtype.bits != output->dtype.bits)
    return ISTHMUS_UNSUPPORTED;
  return floats(grad, [&](auto type) {
    using T = decltype(type);
    return floats(out, [&](auto result) {
      using Result = decltype(result);
      lines<3>({out, grad, output}, dim, [&](const auto& at, int64_t size, const auto& step) {
        const T* g = data<T>(grad) + at[1];
        const T* y = data<T>(output) + at[2];
        double sum = 0;
        for (int64_t i = 0; i < size; ++i) sum += summand(load(g[i * step[1]]), load(y[i * step[2]]));
        for (int64_t i = 0; i < size; ++i) {
          data<Result>(out)[at[0] + i * step[0]] =
              store<Result>(finish(load(g[i * step[1]]), load(y[i * step[2]]), sum));
        }
      });
      return ISTHMUS_OK;
    });
  });
}

isthmus_status softmax_backward(Context, In grad, In output, int64_t dim, Out out) {
  return gradient_by_lines(
      grad, output, dim, out, [](double g, double y) { return g * y; },
      [](double g, double y, double sum) { return y * (g - sum); });
}

isthmus_status log_softmax_backward(Context, In grad, In output, int64_t dim, Out out) {
  return gradient_by_lines(
      grad, output, dim, out, [](double g, double) { return g; },
      [](double g, double y, double sum) { return g - std::exp(y) * sum; });
}

// ---- Layer norm; all tensors are contiguous ----

// Elements of a contiguous tensor, or `fallback` if it is absent.
std::vector<double> values(In tensor, int64_t count, double fallback) {
  std::vector<double> found(static_cast<size_t>(count), fallback);
  if (tensor == nullptr) return found;
  floats(tensor, [&](auto type) {
    for (int64_t i = 0; i < count; ++i) found[static_cast<size_t>(i)] = load(data<decltype(type)>(tensor)[i]);
    return ISTHMUS_OK;
  });
  return found;
}

void assign(Out tensor, int64_t i, double value) {
  floats(tensor, [&](auto type) {
    using T = decltype(type);
    data<T>(tensor)[i] = store<T>(value);
    return ISTHMUS_OK;
  });
}

int64_t product(isthmus_list sizes) {
  int64_t count = 1;
  for (int64_t i = 0; i < sizes.size; ++i) count *= isthmus_list_int(sizes, i);
  return count;
}

isthmus_status layer_norm(Context, In input, isthmus_list shape, In weight, In bias, double eps, Out out,
                          Out mean, Out rstd) {
  const int64_t width = product(shape), rows = width == 0 ? elements(mean) : elements(input) / width;
  const auto scales = values(weight, width, 1), shifts = values(bias, width, 0);
  return floats(input, [&](auto type) {
    using T = decltype(type);
    for (int64_t row = 0; row < rows; ++row) {
      const T* x = data<T>(input) + row * width;
      double sum = 0, squares = 0;
      for (int64_t i = 0; i < width; ++i) sum += load(x[i]);
      const double average = width == 0 ? 0 : sum / static_cast<double>(width);
      for (int64_t i = 0; i < width; ++i) squares += (load(x[i]) - average) * (load(x[i]) - average);
      const double inverse = 1 / std::sqrt(squares / static_cast<double>(width) + eps);
      for (int64_t i = 0; i < width; ++i) {
        const auto at = static_cast<size_t>(i);
        data<T>(out)[row * width + i] = store<T>((load(x[i]) - average) * inverse * scales[at] + shifts[at]);
      }
      assign(mean, row, average);
      assign(rstd, row, width == 0 ? std::numeric_limits<double>::quiet_NaN() : inverse);
    }
    return ISTHMUS_OK;
  });
}

isthmus_status layer_norm_backward(Context, In grad, In input, isthmus_list shape, In mean, In rstd,
                                   In weight, In /*bias*/, isthmus_list /*output_mask*/, Out grad_input,
                                   Out grad_weight, Out grad_bias) {
  const int64_t width = product(shape), rows = elements(mean);
  const auto scales = values(weight, width, 1), means = values(mean, rows, 0),
             inverses = values(rstd, rows, 0);
  std::vector<double> weight_sums(static_cast<size_t>(width), 0), bias_sums(weight_sums);
  return floats(input, [&](auto type) {
    using T = decltype(type);
    for (int64_t row = 0; row < rows; ++row) {
      const T* x = data<T>(input) + row * width;
      const T* g = data<T>(grad) + row * width;
      const double average = means[static_cast<size_t>(row)], inverse = inverses[static_cast<size_t>(row)];
      double sum = 0, dot = 0;  // sums of grad * weight, and of its product with the normalized input
      for (int64_t i = 0; i < width; ++i) {
        const auto at = static_cast<size_t>(i);
        const double normal = (load(x[i]) - average) * inverse;
        sum += load(g[i]) * scales[at];
        dot += load(g[i]) * scales[at] * normal;
        weight_sums[at] += load(g[i]) * normal;
        bias_sums[at] += load(g[i]);
      }
      if (grad_input == nullptr) continue;
      const auto count = static_cast<double>(width);
      for (int64_t i = 0; i < width; ++i) {
        const double normal = (load(x[i]) - average) * inverse;
        const double slope = load(g[i]) * scales[static_cast<size_t>(i)] - sum / count - normal * dot / count;
        data<T>(grad_input)[row * width + i] = store<T>(slope * inverse);
      }
    }
    for (int64_t i = 0; i < width; ++i) {
      if (grad_weight != nullptr) assign(grad_weight, i, weight_sums[static_cast<size_t>(i)]);
      if (grad_bias != nullptr) assign(grad_bias, i, bias_sums[static_cast<size_t>(i)]);
    }
    return ISTHMUS_OK;
  });
}

// ---- Negative log likelihood; all tensors are contiguous ----

isthmus_status refuse_target(Context context) {
  context->explain(context, "target", "contains a class out of range");
  return ISTHMUS_INVALID_ARGUMENT;
}

// Whether every target is a class or ignored.
bool in_range(In target, int64_t classes, int64_t ignored) {
  const auto* first = data<int64_t>(target);
  return std::all_of(first, first + elements(target),
                     [=](int64_t t) { return t == ignored || (t >= 0 && t < classes); });
}

isthmus_status nll_loss(Context context, In self, In target, In weight, int64_t reduction, int64_t ignored,
                        Out output, Out total_weight) {
  const int64_t classes = self->shape[self->ndim - 1], rows = elements(target);
  if (!in_range(target, classes, ignored)) return refuse_target(context);
  const auto weights = values(weight, classes, 1);
  const bool each = reduction == kNone && self->ndim == 2;
  return floats(self, [&](auto type) {
    using T = decltype(type);
    double sum = 0, total = 0;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t c = data<int64_t>(target)[row];
      const double share = c == ignored ? 0 : weights[static_cast<size_t>(c)];
      const double loss = c == ignored ? 0 : -share * load(data<T>(self)[row * classes + c]);
      if (each) assign(output, row, loss);
      sum += loss;
      total += share;
    }
    if (!each) assign(output, 0, reduction == kMean ? sum / total : sum);
    assign(total_weight, 0, each ? 0 : total);
    return ISTHMUS_OK;
  });
}

isthmus_status nll_loss_backward(Context context, In grad, In self, In target, In weight, int64_t reduction,
                                 int64_t ignored, In total_weight, Out out) {
  const int64_t classes = self->shape[self->ndim - 1], rows = elements(target);
  if (!in_range(target, classes, ignored)) return refuse_target(context);
  const auto weights = values(weight, classes, 1), grads = values(grad, elements(grad), 0);
  const double total = reduction == kMean ? values(total_weight, 1, 1)[0] : 1;
  return floats(self, [&](auto type) {
    using T = decltype(type);
    std::fill_n(data<T>(out), elements(out), store<T>(0.0));
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t c = data<int64_t>(target)[row];
      if (c == ignored) continue;
      const double g = grads[grads.size() == 1 ? 0 : static_cast<size_t>(row)];
      data<T>(out)[row * classes + c] = store<T>(-weights[static_cast<size_t>(c)] * g / total);
    }
    return ISTHMUS_OK;
  });
}

}  // namespace

const std::vector<isthmus_operator>& normalization_operators() {
  constexpr uint64_t kWithTargets = kFloats | ISTHMUS_DTYPE(INT64);
  static const std::vector<isthmus_operator> operators = {
      ISTHMUS_OPERATOR(aten__softmax, softmax, kFloats, kStrided),
      ISTHMUS_OPERATOR(aten__log_softmax, log_softmax, kFloats, kStrided),
      ISTHMUS_OPERATOR(aten__safe_softmax, safe_softmax, kFloats, kStrided),
      ISTHMUS_OPERATOR(aten__softmax_backward_data, softmax_backward, kFloats, kStrided),
      ISTHMUS_OPERATOR(aten__log_softmax_backward_data, log_softmax_backward, kFloats, kStrided),
      ISTHMUS_OPERATOR(aten_native_layer_norm, layer_norm, kFloats, kContiguous),
      ISTHMUS_OPERATOR(aten_native_layer_norm_backward, layer_norm_backward, kFloats, kContiguous),
      ISTHMUS_OPERATOR(aten_nll_loss_forward, nll_loss, kWithTargets, kContiguous),
      ISTHMUS_OPERATOR(aten_nll_loss_backward, nll_loss_backward, kWithTargets, kContiguous),
  };
  return operators;
}

}  // namespace sample
