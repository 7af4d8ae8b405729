// Mixtures of experts: rows of tokens gathered for the experts and summed back, and the experts' products.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <cstring>
#include <vector>

#include "kernels/invariant_products.h"
#include "kernels/pieces.h"

namespace isthmus::kernels {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// The numbers of rows, each below the limit.
Tensor checked_rows(const Tensor& given, int64_t limit) {
  const Tensor rows = given.to(at::kLong).contiguous();
  const auto* row = rows.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < rows.numel(); ++i)
    TORCH_CHECK_INDEX(row[i] >= 0 && row[i] < limit, "row ", row[i], " at ", i, " is not in [0, ", limit,
                      ")");
  return rows;
}

Tensor wide_scale(const OptionalTensor& scale, const Tensor& input) {
  return scale.has_value() ? scale->contiguous().to(at::toOpMathType(input.scalar_type())) : Tensor();
}

// out[i] = input[rows[i]] * scale[i]
Tensor gather_rows(const Tensor& given, const Tensor& given_rows, const OptionalTensor& given_scale) {
  const Tensor input = given.contiguous(), rows = checked_rows(given_rows, given.size(0));
  const Tensor scale = wide_scale(given_scale, input);
  const int64_t n = input.size(1), count = rows.numel();
  Tensor out = at::empty({count, n}, input.options());
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, input.scalar_type(), "gather_rows", [&] {
    using V = Vectorized<Wide<scalar_t>>;
    const auto* x = input.const_data_ptr<scalar_t>();
    const auto* row = rows.const_data_ptr<int64_t>();
    const auto* factor = scale.defined() ? scale.const_data_ptr<Wide<scalar_t>>() : nullptr;
    auto* y = out.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, count, rows_per_task(n), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const scalar_t* from = x + row[i] * n;
        if (factor == nullptr) {
          std::memcpy(y + i * n, from, n * sizeof(scalar_t));
          continue;
        }
        const V by(factor[i]);
        for_pieces<scalar_t>(n, [&](int64_t j, int64_t size) {
          const auto p = Piece<scalar_t>::load(from + j, size);
          Piece<scalar_t>{p.low * by, p.high * by}.store(y + i * n + j, size);
        });
      }
    });
  });
  return out;
}

// The numbers i with rows[i] == t, for each t in turn and in their order: begins[t] to begins[t + 1] of
// order.
struct Inverse {
  std::vector<int64_t> begins, order;

  Inverse(const int64_t* rows, int64_t count, int64_t size) : begins(size + 1, 0), order(count) {
    for (int64_t i = 0; i < count; ++i) ++begins[rows[i] + 1];
    for (int64_t t = 0; t < size; ++t) begins[t + 1] += begins[t];
    std::vector<int64_t> next(begins.begin(), begins.end() - 1);
    for (int64_t i = 0; i < count; ++i) order[next[rows[i]]++] = i;
  }
};

constexpr int64_t kTerms = 64;  // that are added one after the other

// The sum of the terms begin to end - 1, of which many are summed by halves, to keep the precision.
// add(i, sum) adds term i to a sum.
template <typename T, typename Add>
Piece<T> pairwise_sum(int64_t begin, int64_t end, const Add& add) {
  using V = Vectorized<Wide<T>>;
  Piece<T> sum{V(0), V(0)};
  if (end - begin > kTerms) {
    const int64_t middle = begin + (end - begin) / 2;
    const Piece<T> first = pairwise_sum<T>(begin, middle, add), rest = pairwise_sum<T>(middle, end, add);
    return {first.low + rest.low, first.high + rest.high};
  }
  for (int64_t at = begin; at < end; ++at) sum = add(at, sum);
  return sum;
}

// out[t] = the sum of input[i] * scale[i] over rows[i] == t, which no other task writes to.
template <typename T>
void sum_rows(const T* input, const Wide<T>* scale, const Inverse& inverse, int64_t t, int64_t n, T* out) {
  using V = Vectorized<Wide<T>>;
  for_pieces<T>(n, [&](int64_t j, int64_t size) {
    const auto add = [&](int64_t at, const Piece<T>& sum) -> Piece<T> {
      const int64_t i = inverse.order[at];
      const auto p = Piece<T>::load(input + i * n + j, size);
      const V by(scale == nullptr ? Wide<T>(1) : scale[i]);
      return {at::vec::fmadd(p.low, by, sum.low), at::vec::fmadd(p.high, by, sum.high)};
    };
    pairwise_sum<T>(inverse.begins[t], inverse.begins[t + 1], add).store(out + j, size);
  });
}

Tensor scatter_rows(const Tensor& given, const Tensor& given_rows, const OptionalTensor& given_scale,
                    int64_t size) {
  const Tensor input = given.contiguous(), rows = checked_rows(given_rows, size);
  TORCH_CHECK_VALUE(rows.numel() == input.size(0), "scatter_rows: ", rows.numel(), " row numbers for ",
                    input.size(0), " rows");
  const Tensor scale = wide_scale(given_scale, input);
  const int64_t n = input.size(1);
  const Inverse inverse(rows.const_data_ptr<int64_t>(), rows.numel(), size);
  Tensor out = at::empty({size, n}, input.options());
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, input.scalar_type(), "scatter_rows", [&] {
    const auto* x = input.const_data_ptr<scalar_t>();
    const auto* factor = scale.defined() ? scale.const_data_ptr<Wide<scalar_t>>() : nullptr;
    auto* y = out.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, size, rows_per_task(n), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) sum_rows(x, factor, inverse, t, n, y + t * n);
    });
  });
  return out;
}

// out[i] = the sum of input[i] * other[rows[i]]
Tensor row_products(const Tensor& given, const Tensor& given_other, const Tensor& given_rows) {
  const Tensor input = given.contiguous(), other = given_other.contiguous();
  const Tensor rows = checked_rows(given_rows, other.size(0));
  TORCH_CHECK_VALUE(rows.numel() == input.size(0) && input.size(1) == other.size(1),
                    "row_products: input is ", input.sizes(), ", other ", other.sizes(), " and ",
                    rows.numel(), " row numbers");
  const int64_t n = input.size(1), count = rows.numel();
  Tensor out = at::empty({count}, input.options().dtype(at::toOpMathType(input.scalar_type())));
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, input.scalar_type(), "row_products", [&] {
    using V = Vectorized<Wide<scalar_t>>;
    const auto* x = input.const_data_ptr<scalar_t>();
    const auto* z = other.const_data_ptr<scalar_t>();
    const auto* row = rows.const_data_ptr<int64_t>();
    auto* y = out.mutable_data_ptr<Wide<scalar_t>>();
    at::parallel_for(0, count, rows_per_task(n), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        V low(0), high(0);
        for_pieces<scalar_t>(n, [&](int64_t j, int64_t size) {
          const auto a = Piece<scalar_t>::load(x + i * n + j, size);
          const auto b = Piece<scalar_t>::load(z + row[i] * n + j, size);
          low = at::vec::fmadd(a.low, b.low, low);
          high = at::vec::fmadd(a.high, b.high, high);
        });
        y[i] = sum_of<V>(low + high);
      }
    });
  });
  return out;
}

// Calls body(group, begin, end) for the rows of each group.
template <typename Body>
void for_groups(const Tensor& given_sizes, int64_t groups, int64_t rows, const Body& body) {
  const Tensor sizes = given_sizes.to(at::kLong).contiguous();
  TORCH_CHECK_VALUE(sizes.numel() == groups, "grouped_matmul: ", sizes.numel(), " sizes for ", groups,
                    " weights");
  const auto* size = sizes.const_data_ptr<int64_t>();
  std::vector<int64_t> begins(groups + 1, 0);
  bool small = groups >= 2 * at::get_num_threads();
  for (int64_t i = 0; i < groups; ++i) {
    TORCH_CHECK_VALUE(size[i] >= 0, "grouped_matmul: size ", size[i], " of group ", i, " is negative");
    begins[i + 1] = begins[i] + size[i];
    small = small && 4 * size[i] <= rows && size[i] <= 64;
  }
  TORCH_CHECK_VALUE(begins[groups] == rows, "grouped_matmul: the sizes of the groups add up to ",
                    begins[groups], ", but the input has ", rows, " rows");
  // A product of few rows is not worth two threads; many of them are.
  const auto run = [&](int64_t from, int64_t to) {
    const at::AutoDispatchBelowADInplaceOrView below;
    for (int64_t i = from; i < to; ++i) body(i, begins[i], begins[i + 1]);
  };
  small ? at::parallel_for(0, groups, 1, run) : run(0, groups);
}

void multiply(Tensor out, const Tensor& a, const Tensor& b) {
  if (out.numel() == 0) return;
  if (a.size(1) == 0)
    out.zero_();
  else
    multiply_matrices(out, a, b);
}

Tensor grouped_matmul(const Tensor& input, const Tensor& weight, const Tensor& sizes, bool trans_b) {
  const Tensor used = trans_b ? weight.transpose(1, 2) : weight;
  Tensor out = at::empty({input.size(0), used.size(2)}, input.options());
  for_groups(sizes, weight.size(0), input.size(0), [&](int64_t i, int64_t begin, int64_t end) {
    multiply(out.slice(0, begin, end), input.slice(0, begin, end), used[i]);
  });
  return out;
}

std::tuple<Tensor, Tensor> grouped_matmul_backward(const Tensor& grad, const Tensor& input,
                                                   const Tensor& weight, const Tensor& sizes, bool trans_b,
                                                   bool for_input, bool for_weight) {
  const auto plain = at::MemoryFormat::Contiguous;
  Tensor dx = for_input ? at::empty_like(input, plain) : Tensor();
  Tensor dw = for_weight ? at::empty_like(weight, plain) : Tensor();
  for_groups(sizes, weight.size(0), input.size(0), [&](int64_t i, int64_t begin, int64_t end) {
    const Tensor g = grad.slice(0, begin, end), x = input.slice(0, begin, end);
    if (for_input) multiply(dx.slice(0, begin, end), g, trans_b ? weight[i] : weight[i].t());
    if (for_weight) trans_b ? multiply(dw[i], g.t(), x) : multiply(dw[i], x.t(), g);
  });
  return {dx, dw};
}

TORCH_LIBRARY_FRAGMENT(isthmus_cpu, m) {
  m.def("gather_rows", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(gather_rows)));
  m.def("scatter_rows", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(scatter_rows)));
  m.def("row_products", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(row_products)));
  m.def("grouped_matmul", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(grouped_matmul)));
  m.def("grouped_matmul_backward", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(grouped_matmul_backward)));
}

}  // namespace
}  // namespace isthmus::kernels
