// Operators that move, make and update data: copies, fills, indices, random numbers, the optimizer.
#include "tables.h"

#include <algorithm>
#include <cmath>

#include "loop.h"

namespace sample {
namespace {

using Context = isthmus_context*;
using In = const DLTensor*;
using Out = DLTensor*;

// ---- Copies and fills ----

isthmus_status copy(Context, Out self, In from) {
  return any_type(self, [&](auto to) {
    return any_type(from, [&](auto type) {
      return map<decltype(to), decltype(type)>(self, {from}, [](auto x) { return x; });
    });
  });
}

isthmus_status fill(Context, Out self, isthmus_scalar value) {
  return any_type(self, [&](auto type) {
    using T = decltype(type);
    const T filled = store<T>(number<Compute<T>>(value));
    Loop<1>(std::array<In, 1>{self}).each([&](const auto& at) { data<T>(self)[at[0]] = filled; });
    return ISTHMUS_OK;
  });
}

isthmus_status zero(Context context, Out self) { return fill(context, self, {ISTHMUS_SCALAR_INT, 0, 0}); }

isthmus_status cat(Context context, isthmus_list tensors, int64_t along, Out out) {
  const int dim = wrap(along, out->ndim);
  std::vector<int64_t> shape(out->shape, out->shape + out->ndim);
  const size_t item = out->dtype.bits / 8u;
  int64_t place = 0;
  for (int64_t i = 0; i < tensors.size; ++i) {
    In part = isthmus_list_tensor(tensors, i);
    if (part->ndim == 1 && part->shape[0] == 0) continue;  // joins anything
    DLTensor slice = *out;
    shape[static_cast<size_t>(dim)] = part->shape[dim];
    slice.shape = shape.data();
    slice.data = data<char>(out) + static_cast<size_t>(place * out->strides[dim]) * item;
    if (const isthmus_status status = copy(context, &slice, part); status != ISTHMUS_OK) return status;
    place += part->shape[dim];
  }
  return ISTHMUS_OK;
}

// Keeps the elements whose column minus row is at most (or at least) the diagonal.
isthmus_status triangle(In self, int64_t diagonal, bool lower, Out out) {
  return all_types(self, [&](auto type) {
    using T = decltype(type);
    const int n = self->ndim;
    const int64_t rows = self->shape[n - 2], columns = self->shape[n - 1];
    int64_t i = 0;
    Loop<2>(std::array<In, 2>{out, self}).each([&](const auto& at) {
      const int64_t row = i / columns % rows, column = i % columns;
      const bool kept = lower ? column - row <= diagonal : column - row >= diagonal;
      data<T>(out)[at[0]] = kept ? data<T>(self)[at[1]] : store<T>(0);
      ++i;
    });
    return ISTHMUS_OK;
  });
}

isthmus_status tril(Context, In self, int64_t diagonal, Out out) { return triangle(self, diagonal, true, out); }
isthmus_status triu(Context, In self, int64_t diagonal, Out out) { return triangle(self, diagonal, false, out); }

isthmus_status arange(Context, isthmus_scalar start, isthmus_scalar /*end*/, isthmus_scalar step, Out out) {
  return numbers(out, [&](auto type) {
    using T = decltype(type);
    const auto first = number<Compute<T>>(start), by = number<Compute<T>>(step);
    const int64_t count = elements(out), stride = out->ndim == 0 ? 1 : out->strides[0];
    for (int64_t i = 0; i < count; ++i) {
      data<T>(out)[i * stride] = store<T>(first + static_cast<Compute<T>>(i) * by);
    }
    return ISTHMUS_OK;
  });
}

// ---- Indices ----

isthmus_status refuse(Context context, const char* argument) {
  context->explain(context, argument, "holds an index out of range");
  return ISTHMUS_INVALID_ARGUMENT;
}

bool in_range(In indices, int64_t size) {
  bool fine = true;
  Loop<1>(std::array<In, 1>{indices}).each([&](const auto& at) {
    const int64_t index = data<int64_t>(indices)[at[0]];
    fine = fine && index >= 0 && index < size;
  });
  return fine;
}

// Contiguous tensors.
isthmus_status embedding(Context context, In weight, In indices, int64_t /*padding*/, bool, bool, Out out) {
  const int64_t width = weight->shape[1], count = elements(indices);
  if (!in_range(indices, weight->shape[0])) return refuse(context, "indices");
  return floats(weight, [&](auto type) {
    using T = decltype(type);
    for (int64_t i = 0; i < count; ++i) {
      std::copy_n(data<T>(weight) + data<int64_t>(indices)[i] * width, width, data<T>(out) + i * width);
    }
    return ISTHMUS_OK;
  });
}

// Contiguous tensors. Rows are summed in double, so that a frequent token loses nothing.
isthmus_status embedding_backward(Context context, In grad, In indices, int64_t rows, int64_t padding, bool by_freq,
                                  Out out) {
  const int64_t width = grad->shape[grad->ndim - 1], count = elements(indices);
  if (!in_range(indices, rows)) return refuse(context, "indices");
  if (elements(out) == 0) return ISTHMUS_OK;
  auto* sums =
      static_cast<double*>(context->workspace(context, static_cast<size_t>(elements(out)) * sizeof(double)));
  if (sums == nullptr) return ISTHMUS_OUT_OF_MEMORY;
  std::fill_n(sums, elements(out), 0.0);
  std::vector<int64_t> uses(static_cast<size_t>(rows), 0);
  const auto* index = data<int64_t>(indices);
  for (int64_t i = 0; i < count; ++i) ++uses[static_cast<size_t>(index[i])];
  return floats(grad, [&](auto type) {
    using T = decltype(type);
    for (int64_t i = 0; i < count; ++i) {
      if (index[i] == padding) continue;
      const double share = by_freq ? 1.0 / static_cast<double>(uses[static_cast<size_t>(index[i])]) : 1;
      for (int64_t j = 0; j < width; ++j) sums[index[i] * width + j] += share * load(data<T>(grad)[i * width + j]);
    }
    for (int64_t i = 0; i < elements(out); ++i) data<T>(out)[i] = store<T>(sums[i]);
    return ISTHMUS_OK;
  });
}

isthmus_status gather(Context context, In self, int64_t along, In index, bool, Out out) {
  const int dim = wrap(along, self->ndim);
  const int64_t size = self->ndim == 0 ? 1 : self->shape[dim], stride = self->ndim == 0 ? 0 : self->strides[dim];
  if (!in_range(index, size)) return refuse(context, "index");
  return all_types(self, [&](auto type) {
    using T = decltype(type);
    std::vector<Loop<3>::Dim> dims;
    for (int d = 0; d < index->ndim; ++d) {
      dims.push_back({index->shape[d], {out->strides[d], index->strides[d], d == dim ? 0 : self->strides[d]}});
    }
    Loop<3>(dims).each([&](const auto& at) {
      data<T>(out)[at[0]] = data<T>(self)[at[2] + data<int64_t>(index)[at[1]] * stride];
    });
    return ISTHMUS_OK;
  });
}

isthmus_status index_select(Context context, In self, int64_t along, In index, Out out) {
  const int dim = wrap(along, self->ndim);
  const int64_t size = self->ndim == 0 ? 1 : self->shape[dim], stride = self->ndim == 0 ? 0 : self->strides[dim];
  if (!in_range(index, size)) return refuse(context, "index");
  return all_types(self, [&](auto type) {
    using T = decltype(type);
    std::vector<Loop<3>::Dim> dims;
    for (int d = 0; d < out->ndim; ++d) {
      const int64_t step = index->ndim == 0 ? 0 : index->strides[0];
      dims.push_back({out->shape[d], {out->strides[d], d == dim ? step : 0, d == dim ? 0 : self->strides[d]}});
    }
    Loop<3>(dims).each([&](const auto& at) {
      data<T>(out)[at[0]] = data<T>(self)[at[2] + data<int64_t>(index)[at[1]] * stride];
    });
    return ISTHMUS_OK;
  });
}

// ---- Random numbers: the i-th of a seed is a hash of both (splitmix64) ----

double uniform_at(uint64_t seed, int64_t i) {
  uint64_t x = seed + (static_cast<uint64_t>(i) + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return static_cast<double>((x ^ x >> 31) >> 11) * 0x1p-53;
}

// Box and Muller; the logarithm of 0 is not asked.
double normal_at(uint64_t seed, int64_t i) {
  constexpr double kTwoPi = 6.28318530717958647693;
  return std::sqrt(-2 * std::log(1 - uniform_at(seed, 2 * i))) * std::cos(kTwoPi * uniform_at(seed, 2 * i + 1));
}

template <typename Draw>
isthmus_status draw_each(Out self, Draw draw) {
  return all_types(self, [&](auto type) {
    using T = decltype(type);
    int64_t i = 0;
    Loop<1>(std::array<In, 1>{self}).each([&](const auto& at) { data<T>(self)[at[0]] = store<T>(draw(i++)); });
    return ISTHMUS_OK;
  });
}

isthmus_status normal(Context context, Out self, double mean, double std) {
  return draw_each(self, [=](int64_t i) { return mean + std * normal_at(context->seed, i); });
}

// In [from, to): rounding may reach the end, which is then replaced.
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
    const double bound = adam.amsgrad ? std::max<double>(load(largest[i]), v) : v;
    const double kept = load(parameter[i]) * (1 - adam.lr * adam.decay);
    const double step = adam.lr / adam.bias1 * m / (std::sqrt(bound) / std::sqrt(adam.bias2) + adam.eps);
    average[i] = store<T>(m);
    square[i] = store<T>(v);
    if (adam.amsgrad) largest[i] = store<T>(bound);
    parameter[i] = store<T>(kept - step);
  }
}

bool same_dtype(In a, In b) { return a->dtype.code == b->dtype.code && a->dtype.bits == b->dtype.bits; }

isthmus_status fused_adamw(Context, isthmus_list self, isthmus_list grads, isthmus_list averages, isthmus_list squares,
                           isthmus_list largest, isthmus_list steps, double lr, double beta1, double beta2,
                           double decay, double eps, bool amsgrad, bool maximize, In grad_scale, In found_inf) {
  if (found_inf != nullptr && *data<float>(found_inf) != 0) return ISTHMUS_OK;
  const double scale = grad_scale != nullptr ? *data<float>(grad_scale) : 1;
  for (int64_t i = 0; i < self.size; ++i) {
    Out parameter = isthmus_list_output(self, i), grad = isthmus_list_output(grads, i);
    Out average = isthmus_list_output(averages, i), square = isthmus_list_output(squares, i);
    Out most = amsgrad ? isthmus_list_output(largest, i) : nullptr;
    if (!same_dtype(parameter, grad) || !same_dtype(parameter, average)) return ISTHMUS_UNSUPPORTED;
    const double step = *data<float>(isthmus_list_tensor(steps, i));
    const Adam adam{lr, beta1, beta2, decay, eps, 1 - std::pow(beta1, step), 1 - std::pow(beta2, step), scale,
                    amsgrad, maximize};
    const isthmus_status status = floats(parameter, [&](auto type) {
      using T = decltype(type);
      update<T>(adam, elements(parameter), data<T>(parameter), data<T>(grad), data<T>(average), data<T>(square),
                amsgrad ? data<T>(most) : nullptr);
      return ISTHMUS_OK;
    });
    if (status != ISTHMUS_OK) return status;
  }
  return ISTHMUS_OK;
}

}  // namespace

const std::vector<isthmus_operator>& data_operators() {
  constexpr uint64_t kIndexed = kFloats | ISTHMUS_DTYPE(INT64);
  static const std::vector<isthmus_operator> operators = {
      ISTHMUS_OPERATOR(aten_copy_, copy, kCopied, kStrided | ISTHMUS_OPERATOR_MIXED),
      ISTHMUS_OPERATOR(aten_fill__Scalar, fill, kCopied, kStrided),
      ISTHMUS_OPERATOR(aten_zero_, zero, kCopied, kStrided),
      ISTHMUS_OPERATOR(aten_cat, cat, kCopied, kStrided | ISTHMUS_OPERATOR_MIXED),
      ISTHMUS_OPERATOR(aten_tril, tril, kAll, kPointwise),
      ISTHMUS_OPERATOR(aten_triu, triu, kAll, kPointwise),
      ISTHMUS_OPERATOR(aten_arange_start_step, arange, kNumbers, kStrided),
      ISTHMUS_OPERATOR(aten_embedding, embedding, kIndexed, kContiguous),
      ISTHMUS_OPERATOR(aten_embedding_dense_backward, embedding_backward, kIndexed, kContiguous),
      ISTHMUS_OPERATOR(aten_gather, gather, kAll, kStrided),
      ISTHMUS_OPERATOR(aten_index_select, index_select, kAll, kStrided),
      ISTHMUS_OPERATOR(aten_normal_, normal, kFloats, kStrided),
      ISTHMUS_OPERATOR(aten_uniform_, uniform, kFloats, kStrided),
      ISTHMUS_OPERATOR(aten_bernoulli__float, bernoulli, kAll, kStrided),
      ISTHMUS_OPERATOR(aten__fused_adamw_, fused_adamw, kFloats, kContiguous),
  };
  return operators;
}

}  // namespace sample
