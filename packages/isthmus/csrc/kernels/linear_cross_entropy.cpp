// Cross entropy of a linear layer's outputs. With gradients, by groups of rows: the logits of one group are
// there at a time, and are turned into their gradient in place. Without, by blocks of rows and columns.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <tuple>
#include <vector>

#include "kernels/batch_invariant.h"
#include "kernels/cross_entropy.h"
#include "kernels/invariant_products.h"

namespace isthmus::kernels {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// Without gradients a block of logits is as large as products of matrices are fast at, if the caller allows
// it.
constexpr int64_t kRows = 1024, kColumns = 4096;

// The operands, and what the caller makes of the losses.
struct Call {
  Tensor hidden, weight, bias, target, grad;  // bias and grad may be undefined
  int64_t ignore_index;
  double smoothing, scale, softcap, lse_square;

  int64_t rows() const { return hidden.size(0); }
  int64_t classes() const { return weight.size(0); }

  template <typename W>
  LossTerms<W> terms() const {
    return {scale, softcap, smoothing, lse_square};
  }
};

struct Losses {
  Tensor loss, lse;

  template <typename W>
  void put(int64_t row, bool ignored, const RowLoss<W>& got) const {
    loss.mutable_data_ptr<W>()[row] = ignored ? W(0) : got.loss;
    lse.mutable_data_ptr<W>()[row] = got.lse;
  }
};

// Some rows of logits for some of the classes, at the buffer's beginning.
Tensor logits_of(const Call& call, const Tensor& buffer, int64_t row, int64_t rows, int64_t column,
                 int64_t columns) {
  Tensor out = buffer.narrow(0, 0, rows * columns).view({rows, columns});
  const Tensor part = call.hidden.narrow(0, row, rows);
  const Tensor weight = call.weight.narrow(0, column, columns).t();
  multiply_matrices(out, part, weight, call.bias.defined() ? call.bias.narrow(0, column, columns) : Tensor());
  return out;
}

template <typename T>
void losses_by_blocks(const Call& call, int64_t chunk, const Losses& to) {
  using W = Wide<T>;
  const int64_t rows = call.rows(), n = call.classes(), height = std::min(rows, kRows);
  if (rows == 0) return;
  // A row's sum is continued from block to block, so that its bits depend on their width.
  const int64_t width = batch_invariant ? std::min(n, kColumns)
                                        : std::max<int64_t>(1, std::min({chunk * n / height, n, kColumns}));
  const auto terms = call.terms<W>();
  const int64_t* target = call.target.const_data_ptr<int64_t>();
  const Tensor buffer = at::empty({height * width}, call.hidden.options());
  std::vector<W> at_target(height);
  for (int64_t begin = 0; begin < rows; begin += height) {
    const int64_t count = std::min(height, rows - begin);
    std::vector<RowSum<W>> sums(count);
    for (int64_t column = 0; column < n; column += width) {
      const int64_t columns = std::min(width, n - column);
      const Tensor logits = logits_of(call, buffer, begin, count, column, columns);
      const T* x = logits.const_data_ptr<T>();
      at::parallel_for(0, count, rows_per_task(columns), [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
          sums[i].add(x + i * columns, columns, terms);
          const int64_t place = target[begin + i] - column;
          if (place >= 0 && place < columns) at_target[i] = static_cast<W>(x[i * columns + place]);
        }
      });
    }
    for (int64_t i = 0; i < count; ++i) {
      const bool ignored = target[begin + i] == call.ignore_index;
      to.put(begin + i, ignored, row_loss(sums[i], n, ignored ? W(0) : at_target[i], terms));
    }
  }
}

// Losses of rows from `begin` on, whose logits become their gradients.
template <typename T>
void losses_and_gradients(const Call& call, const Tensor& logits, int64_t begin, const Losses& to) {
  using W = Wide<T>;
  const int64_t n = call.classes();
  const auto terms = call.terms<W>();
  const int64_t* target = call.target.const_data_ptr<int64_t>();
  const W* grad = call.grad.defined() ? call.grad.const_data_ptr<W>() : nullptr;
  T* logit = logits.mutable_data_ptr<T>();
  at::parallel_for(0, logits.size(0), rows_per_task(n), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t row = begin + i;
      const bool ignored = target[row] == call.ignore_index;
      T* x = logit + i * n;
      const auto got = row_loss<T>(x, n, ignored ? 0 : target[row], terms);
      to.put(row, ignored, got);
      if (ignored)
        std::fill_n(x, n, T(0));
      else
        row_gradient<T>(x, n, target[row], got.lse, grad ? grad[row] : W(1), W(0), terms, x);
    }
  });
}

struct Gradients {
  Tensor hidden, weight, bias;  // undefined where not wanted

  Gradients(const Call& call, const std::array<bool, 3>& wanted) {
    const auto wide = call.hidden.options().dtype(at::toOpMathType(call.hidden.scalar_type()));
    if (wanted[0]) hidden = at::empty(call.hidden.sizes(), call.hidden.options());
    if (wanted[1]) weight = at::empty(call.weight.sizes(), call.weight.options());
    if (wanted[2]) bias = at::zeros({call.classes()}, wide);
    if (wanted[1] && call.rows() == 0) weight.zero_();
  }

  // Contribution of the rows from `begin` on, with the gradients of their logits, to each.
  void add(const Call& call, const Tensor& logits, int64_t begin) {
    const int64_t count = logits.size(0);
    const Tensor part = call.hidden.narrow(0, begin, count);
    if (hidden.defined()) {
      Tensor out = hidden.narrow(0, begin, count);
      at::mm_out(out, logits, call.weight);
    }
    if (weight.defined() && begin == 0)
      at::mm_out(weight, logits.t(), part);
    else if (weight.defined())
      weight.addmm_(logits.t(), part);
    if (bias.defined()) bias.add_(logits.sum(0, false, bias.scalar_type()));
  }
};

// Rows of a group, at most `chunk`: of groups that are as large as one another, for a small last one would
// make products of few rows.
int64_t even_rows(int64_t rows, int64_t chunk) {
  constexpr int64_t kMultiple = 16;
  const int64_t groups = (rows + chunk - 1) / chunk, even = (rows + groups - 1) / groups;
  return std::min(chunk, (even + kMultiple - 1) / kMultiple * kMultiple);
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> linear_cross_entropy(
    const Tensor& hidden, const Tensor& weight, const OptionalTensor& bias, const Tensor& target,
    const OptionalTensor& grad, int64_t ignore_index, double label_smoothing, double logit_scale,
    double softcap, double lse_square_scale, int64_t chunk_size, std::array<bool, 3> wanted) {
  const Call call{hidden,
                  weight,
                  bias.value_or(Tensor()),
                  target.contiguous(),
                  grad.has_value() ? grad->contiguous() : Tensor(),
                  ignore_index,
                  label_smoothing,
                  logit_scale,
                  softcap,
                  lse_square_scale};
  const int64_t rows = call.rows(), chunk = std::clamp<int64_t>(chunk_size, 1, std::max<int64_t>(rows, 1));
  const auto wide = hidden.options().dtype(at::toOpMathType(hidden.scalar_type()));
  const Losses losses{at::empty({rows}, wide), at::empty({rows}, wide)};
  Gradients grads(call, wanted);
  check_targets(call.target.const_data_ptr<int64_t>(), rows, call.classes(), ignore_index);
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, hidden.scalar_type(), "linear_cross_entropy", [&] {
        if (!wanted[0] && !wanted[1] && !wanted[2]) {
          losses_by_blocks<scalar_t>(call, chunk, losses);
          return;
        }
        if (rows == 0) return;
        const int64_t height = even_rows(rows, chunk);
        const Tensor buffer = at::empty({std::min(rows, height) * call.classes()}, hidden.options());
        for (int64_t begin = 0; begin < rows; begin += height) {
          const int64_t count = std::min(height, rows - begin);
          const Tensor logits = logits_of(call, buffer, begin, count, 0, call.classes());
          losses_and_gradients<scalar_t>(call, logits, begin, losses);
          grads.add(call, logits, begin);
        }
      });
  return {losses.loss, losses.lse, grads.hidden, grads.weight, grads.bias};
}

TORCH_LIBRARY_FRAGMENT(isthmus_cpu, m) {
  m.def("linear_cross_entropy", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(linear_cross_entropy)));
}

}  // namespace
}  // namespace isthmus::kernels
