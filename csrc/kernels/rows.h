// Where the rows of a tensor begin whose last dimension is dense and whose other strides are anything; and
// what a softmax over a row takes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kernels/pieces.h"

namespace isthmus::kernels {

// Within 20 units in the last place in float, which is far below what a sum of such terms is rounded by.
template <typename V>
inline V fast_exp(const V& x) {
  return x.exp_u20();
}

template <typename V>
inline auto max_of(V vector) {
  return at::vec::vec_reduce_all([](V& x, V& y) { return at::vec::maximum(x, y); }, vector);
}

// The tensor if the elements of its last dimension follow each other, else a copy in which they do.
inline at::Tensor with_dense_rows(const at::Tensor& tensor) {
  return tensor.dim() > 0 && (tensor.stride(-1) == 1 || tensor.size(-1) == 1) ? tensor : tensor.contiguous();
}

inline int64_t row_count(const at::Tensor& tensor) {
  const int64_t n = tensor.dim() > 0 ? tensor.size(-1) : 1;
  return n == 0 ? 0 : tensor.numel() / n;
}

// The rows in the order of the leading dimensions.
class Rows {
 public:
  explicit Rows(const at::Tensor& tensor)
      : sizes_(tensor.sizes()), strides_(tensor.strides()), contiguous_(tensor.is_contiguous()) {}

  // Elements from the tensor's first to the row's first.
  int64_t offset(int64_t row) const {
    if (contiguous_) return row * (sizes_.empty() ? 1 : sizes_.back());
    int64_t found = 0;
    for (int64_t i = static_cast<int64_t>(sizes_.size()) - 2; i >= 0; --i) {
      found += row % sizes_[i] * strides_[i];
      row /= sizes_[i];
    }
    return found;
  }

 private:
  at::IntArrayRef sizes_, strides_;  // of a tensor that outlives this
  bool contiguous_;
};

}  // namespace isthmus::kernels
