// Reductions. Sums of floats are in double.
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

// The reduced dimensions of self; an absent or empty list means all.
std::vector<bool> reduced_dims(In self, isthmus_list dims) {
  std::vector<bool> reduced(static_cast<size_t>(self->ndim), dims.size <= 0);
  for (int64_t i = 0; i < dims.size && self->ndim > 0; ++i) {
    reduced[static_cast<size_t>(wrap(isthmus_list_int(dims, i), self->ndim))] = true;
  }
  return reduced;
}

std::vector<bool> reduced_dim(In self, int64_t dim) {
  std::vector<bool> reduced(static_cast<size_t>(self->ndim), false);
  if (self->ndim > 0) reduced[static_cast<size_t>(wrap(dim, self->ndim))] = true;
  return reduced;
}

// Calls body(position in out, position in self, loop over the reduced elements of self) for each
// output.
template <typename Body>
void fold(In self, In out, const std::vector<bool>& reduced, Body&& body) {
  const bool keeps = out->ndim == self->ndim;
  std::vector<Loop<2>::Dim> kept;
  std::vector<Loop<1>::Dim> gone;
  int place = 0;  // the dimension of out
  for (int d = 0; d < self->ndim; ++d) {
    if (reduced[static_cast<size_t>(d)]) {
      gone.push_back({self->shape[d], {self->strides[d]}});
      place += keeps;
    } else {
      kept.push_back({self->shape[d], {out->strides[place++], self->strides[d]}});
    }
  }
  const Loop<1> inner(gone);
  Loop<2>(kept).each([&](const auto& at) { body(at[0], at[1], inner); });
}

// out = finish(step(... step(start, element) ...)), accumulated as Sum.
template <typename T, typename Result, typename Sum, typename Step, typename Finish>
isthmus_status accumulate(In self, Out out, const std::vector<bool>& reduced, Sum start, Step step,
                          Finish finish) {
  fold(self, out, reduced, [&](int64_t to, int64_t from, const Loop<1>& inner) {
    Sum sum = start;
    inner.runs([&](const auto& at, int64_t size, const auto& stride) {
      const T* items = data<T>(self) + from + at[0];
      for (int64_t i = 0; i < size; ++i) sum = step(sum, load(items[i * stride[0]]));
    });
    data<Result>(out)[to] = store<Result>(finish(sum));
  });
  return ISTHMUS_OK;
}

template <typename T>
using Sum = std::conditional_t<std::is_integral_v<Compute<T>>, int64_t, double>;

isthmus_status sum_over(In self, Out out, const std::vector<bool>& reduced) {
  return all_types(self, [&](auto type) {
    using T = decltype(type);
    return numbers(out, [&](auto result) {
      return accumulate<T, decltype(result)>(
          self, out, reduced, Sum<T>{0}, [](Sum<T> sum, Sum<T> x) { return sum + x; },
          [](Sum<T> sum) { return sum; });
    });
  });
}

isthmus_status sum(Context, In self, Out out) {
  return sum_over(self, out, reduced_dims(self, {-1, nullptr}));
}

isthmus_status sum_dims(Context, In self, isthmus_list dims, bool /*keepdim*/, Out out) {
  return sum_over(self, out, reduced_dims(self, dims));
}

isthmus_status mean_over(In self, Out out, const std::vector<bool>& reduced) {
  double count = 1;
  for (int d = 0; d < self->ndim; ++d) {
    if (reduced[static_cast<size_t>(d)]) count *= static_cast<double>(self->shape[d]);
  }
  return floats(self, [&](auto type) {
    return floats(out, [&](auto result) {
      return accumulate<decltype(type), decltype(result)>(
          self, out, reduced, 0.0, [](double sum, double x) { return sum + x; },
          [=](double sum) { return sum / count; });
    });
  });
}

isthmus_status mean(Context, In self, Out out) {
  return mean_over(self, out, reduced_dims(self, {-1, nullptr}));
}

isthmus_status mean_dims(Context, In self, isthmus_list dims, bool /*keepdim*/, Out out) {
  return mean_over(self, out, reduced_dims(self, dims));
}

// The maximum (sign 1) or minimum (sign -1). NaN wins.
isthmus_status extreme(In self, isthmus_list dims, Out out, int sign) {
  return numbers(self, [&](auto type) {
    using T = decltype(type);
    using Value = Compute<T>;
    using Limits = std::numeric_limits<Value>;
    const Value least = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    const Value most = Limits::has_infinity ? Limits::infinity() : Limits::max();
    return accumulate<T, T>(
        self, out, reduced_dims(self, dims), sign > 0 ? least : most,
        [=](Value best, Value x) {
          return x != x || (best == best && (sign > 0 ? x > best : x < best)) ? x : best;
        },
        [](Value best) { return best; });
  });
}

isthmus_status amax(Context, In self, isthmus_list dims, bool /*keepdim*/, Out out) {
  return extreme(self, dims, out, 1);
}

isthmus_status amin(Context, In self, isthmus_list dims, bool /*keepdim*/, Out out) {
  return extreme(self, dims, out, -1);
}

isthmus_status max(Context, In self, Out out) { return extreme(self, {-1, nullptr}, out, 1); }
isthmus_status min(Context, In self, Out out) { return extreme(self, {-1, nullptr}, out, -1); }

isthmus_status any_over(In self, Out out, const std::vector<bool>& reduced) {
  return all_types(self, [&](auto type) {
    return accumulate<decltype(type), bool>(
        self, out, reduced, int64_t{0}, [](int64_t found, auto x) -> int64_t { return found || x != 0; },
        [](int64_t found) { return found; });
  });
}

isthmus_status all_over(In self, Out out, const std::vector<bool>& reduced) {
  return all_types(self, [&](auto type) {
    return accumulate<decltype(type), bool>(
        self, out, reduced, int64_t{1}, [](int64_t found, auto x) -> int64_t { return found && x != 0; },
        [](int64_t found) { return found; });
  });
}

isthmus_status any(Context, In self, Out out) {
  return any_over(self, out, reduced_dims(self, {-1, nullptr}));
}

isthmus_status any_dim(Context, In self, int64_t dim, bool /*keepdim*/, Out out) {
  return any_over(self, out, reduced_dim(self, dim));
}

isthmus_status all(Context, In self, Out out) {
  return all_over(self, out, reduced_dims(self, {-1, nullptr}));
}

// Index of the first maximum.
isthmus_status argmax(Context, In self, const int64_t* dim, bool /*keepdim*/, Out out) {
  return numbers(self, [&](auto type) {
    using T = decltype(type);
    const auto reduced = dim != nullptr ? reduced_dim(self, *dim) : reduced_dims(self, {-1, nullptr});
    fold(self, out, reduced, [&](int64_t to, int64_t from, const Loop<1>& inner) {
      int64_t place = 0, seen = 0;
      Compute<T> best{};
      inner.each([&](const auto& at) {
        const auto x = load(data<T>(self)[from + at[0]]);
        if (seen == 0 || (best == best && (x != x || x > best))) best = x, place = seen;
        ++seen;
      });
      data<int64_t>(out)[to] = place;
    });
    return ISTHMUS_OK;
  });
}

isthmus_status vector_norm(Context, In self, isthmus_scalar order, isthmus_list dims, bool /*keepdim*/,
                           Out out) {
  const double p = order.as_double;
  if (p < 0 || p == 0) return ISTHMUS_UNSUPPORTED;
  const auto step = [=](double sum, double x) {
    const double size = std::abs(x);
    if (std::isinf(p)) return size != size || size > sum ? size : sum;
    return sum + (p == 2 ? size * size : p == 1 ? size : std::pow(size, p));
  };
  const auto finish = [=](double sum) {
    return std::isinf(p) || p == 1 ? sum : p == 2 ? std::sqrt(sum) : std::pow(sum, 1 / p);
  };
  return floats(self, [&](auto type) {
    return floats(out, [&](auto result) {
      return accumulate<decltype(type), decltype(result)>(self, out, reduced_dims(self, dims), 0.0, step,
                                                          finish);
    });
  });
}

isthmus_status cumsum(Context, In self, int64_t dim, Out out) {
  return all_types(self, [&](auto type) {
    using T = decltype(type);
    return numbers(out, [&](auto result) {
      using Result = decltype(result);
      lines<2>({out, self}, dim, [&](const auto& at, int64_t size, const auto& step) {
        Sum<T> sum{0};
        for (int64_t i = 0; i < size; ++i) {
          sum += load(data<T>(self)[at[1] + i * step[1]]);
          data<Result>(out)[at[0] + i * step[0]] = store<Result>(sum);
        }
      });
      return ISTHMUS_OK;
    });
  });
}

}  // namespace

const std::vector<isthmus_operator>& reduction_operators() {
  static const std::vector<isthmus_operator> operators = {
      ISTHMUS_OPERATOR(aten_sum, sum, kAll, kStrided),
      ISTHMUS_OPERATOR(aten_sum_dim_IntList, sum_dims, kAll, kStrided),
      ISTHMUS_OPERATOR(aten_mean, mean, kFloats, kStrided),
      ISTHMUS_OPERATOR(aten_mean_dim, mean_dims, kFloats, kStrided),
      ISTHMUS_OPERATOR(aten_amax, amax, kNumbers, kStrided),
      ISTHMUS_OPERATOR(aten_amin, amin, kNumbers, kStrided),
      ISTHMUS_OPERATOR(aten_max, max, kNumbers, kStrided),
      ISTHMUS_OPERATOR(aten_min, min, kNumbers, kStrided),
      ISTHMUS_OPERATOR(aten_any, any, kAll, kStrided),
      ISTHMUS_OPERATOR(aten_any_dim, any_dim, kAll, kStrided),
      ISTHMUS_OPERATOR(aten_all, all, kAll, kStrided),
      ISTHMUS_OPERATOR(aten_argmax, argmax, kNumbers, kStrided),
      ISTHMUS_OPERATOR(aten_linalg_vector_norm, vector_norm, kFloats, kStrided),
      ISTHMUS_OPERATOR(aten_cumsum, cumsum, kAll, kStrided),
  };
  return operators;
}

}  // namespace sample
