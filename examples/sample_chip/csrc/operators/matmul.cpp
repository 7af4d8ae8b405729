// Matrix products of any strides, accumulated in double.
#include <algorithm>

#include "loop.h"
#include "tables.h"

namespace sample {
namespace {

using Context = isthmus_context*;
using In = const DLTensor*;
using Out = DLTensor*;

constexpr int64_t kRows = 4;  // rows of a tile of the product
constexpr int64_t kColumns = 64;
constexpr int64_t kDepth = 128;  // depth of a panel of the factors

// A matrix within a tensor.
template <typename T>
struct Matrix {
  T* first;
  int64_t row, column;  // strides
  T& at(int64_t i, int64_t j) const { return first[i * row + j * column]; }
};

template <typename T>
Matrix<T> last_two(const DLTensor* tensor, int64_t batch = 0) {
  const int n = tensor->ndim;
  T* first = data<T>(tensor) + (n == 3 ? batch * tensor->strides[0] : 0);
  return {first, tensor->strides[n - 2], tensor->strides[n - 1]};
}

struct Panels {
  double a[kRows * kDepth];
  double b[kDepth * kColumns];
  double sums[kRows * kColumns];
};

// sums of the tile += a panel times b panel.
void multiply(Panels& panels, int64_t rows, int64_t depth) {
  for (int64_t i = 0; i < rows; ++i) {
    double* sums = panels.sums + i * kColumns;
    for (int64_t k = 0; k < depth; ++k) {
      const double factor = panels.a[i * kDepth + k];
      const double* b = panels.b + k * kColumns;
      for (int64_t j = 0; j < kColumns; ++j) sums[j] += factor * b[j];
    }
  }
}

// Calls finish(i, j, sum) for each element of a (m x k) times b (k x n). The sums of a strip of columns wait
// in `sums`, so that each panel of b is converted once.
template <typename T, typename Finish>
void product(Matrix<const T> a, Matrix<const T> b, int64_t m, int64_t n, int64_t depth, double* sums,
             Finish finish) {
  Panels panels;
  for (int64_t column = 0; column < n; column += kColumns) {
    const int64_t columns = std::min(kColumns, n - column);
    std::fill_n(sums, m * kColumns, 0.0);
    for (int64_t k0 = 0; k0 < depth; k0 += kDepth) {
      const int64_t size = std::min(kDepth, depth - k0);
      std::fill_n(panels.b, kDepth * kColumns, 0.0);
      for (int64_t k = 0; k < size; ++k) {
        for (int64_t j = 0; j < columns; ++j) panels.b[k * kColumns + j] = load(b.at(k0 + k, column + j));
      }
      for (int64_t row = 0; row < m; row += kRows) {
        const int64_t rows = std::min(kRows, m - row);
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t k = 0; k < size; ++k) panels.a[i * kDepth + k] = load(a.at(row + i, k0 + k));
        }
        std::copy_n(sums + row * kColumns, rows * kColumns, panels.sums);
        multiply(panels, rows, size);
        std::copy_n(panels.sums, rows * kColumns, sums + row * kColumns);
      }
    }
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < columns; ++j) finish(i, column + j, sums[i * kColumns + j]);
    }
  }
}

// out = beta * self + alpha * (a @ b), batch by batch; self may be null, and is broadcast.
isthmus_status matmul(Context context, In self, In a, In b, double beta, double alpha, Out out) {
  const int n = out->ndim;
  const int64_t batches = n == 3 ? out->shape[0] : 1;
  const int64_t rows = out->shape[n - 2], columns = out->shape[n - 1], depth = a->shape[n - 1];
  if (elements(out) == 0) return ISTHMUS_OK;
  auto* sums = static_cast<double*>(
      context->workspace(context, static_cast<size_t>(rows * kColumns) * sizeof(double)));
  if (sums == nullptr) return ISTHMUS_OUT_OF_MEMORY;
  const auto added_stride = [&](int dim) -> int64_t {  // stride of self at a dimension of out
    const int own = self == nullptr ? -1 : dim - (n - self->ndim);
    return own < 0 || self->shape[own] == 1 ? 0 : self->strides[own];
  };
  const int64_t by_batch = n == 3 ? added_stride(0) : 0, by_row = added_stride(n - 2),
                by_column = added_stride(n - 1);
  const bool adds = self != nullptr && beta != 0;  // beta 0 ignores the contents of self
  return floats(out, [&](auto type) {
    using T = decltype(type);
    for (int64_t batch = 0; batch < batches; ++batch) {
      const auto to = last_two<T>(out, batch);
      const T* added = adds ? data<T>(self) + batch * by_batch : nullptr;
      product<T>(last_two<const T>(a, batch), last_two<const T>(b, batch), rows, columns, depth, sums,
                 [&](int64_t i, int64_t j, double sum) {
                   double value = alpha * sum;
                   if (adds) value += beta * load(added[i * by_row + j * by_column]);
                   to.at(i, j) = store<T>(value);
                 });
    }
    return ISTHMUS_OK;
  });
}

isthmus_status mm(Context context, In self, In other, Out out) {
  return matmul(context, nullptr, self, other, 0, 1, out);
}

isthmus_status addmm(Context context, In self, In first, In second, isthmus_scalar beta, isthmus_scalar alpha,
                     Out out) {
  return matmul(context, self, first, second, beta.as_double, alpha.as_double, out);
}

}  // namespace

const std::vector<isthmus_operator>& matmul_operators() {
  static const std::vector<isthmus_operator> operators = {
      ISTHMUS_OPERATOR(aten_mm, mm, kFloats, kStrided),
      ISTHMUS_OPERATOR(aten_bmm, mm, kFloats, kStrided),
      ISTHMUS_OPERATOR(aten_addmm, addmm, kFloats, kStrided),
      ISTHMUS_OPERATOR(aten_baddbmm, addmm, kFloats, kStrided),
  };
  return operators;
}

}  // namespace sample
