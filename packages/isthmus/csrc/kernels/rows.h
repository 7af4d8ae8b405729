// The rows of a tensor, which are its last dimension: where each begins, and what a softmax takes of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kernels/pieces.h"

namespace isthmus::kernels {

// Offset of each row, in elements, whatever the strides of the dimensions before the last.
class Rows {
 public:
  explicit Rows(const at::Tensor& tensor) {
    for (int64_t dim = tensor.dim() - 2; dim >= 0; --dim) {
      const int64_t size = tensor.size(dim), stride = tensor.stride(dim);
      if (size == 1) continue;
      if (!dims_.empty() && stride == dims_.back().stride * dims_.back().size)
        dims_.back().size *= size;  // one walk goes on where the other ends
      else
        dims_.push_back({size, stride});
    }
  }

  int64_t offset(int64_t row) const {
    int64_t sum = 0;
    for (size_t i = 0; i < dims_.size(); ++i) {
      const bool last = i + 1 == dims_.size();
      sum += (last ? row : row % dims_[i].size) * dims_[i].stride;
      if (!last) row /= dims_[i].size;
    }
    return sum;
  }

 private:
  struct Dimension {
    int64_t size, stride;
  };
  std::vector<Dimension> dims_;  // innermost first
};

// The tensor itself if the elements of a row are neighbours, or a contiguous copy.
inline at::Tensor with_dense_rows(const at::Tensor& tensor) {
  return tensor.dim() > 0 && (tensor.stride(-1) == 1 || tensor.size(-1) <= 1) ? tensor : tensor.contiguous();
}

inline int64_t row_count(const at::Tensor& tensor) {
  return tensor.size(-1) == 0 ? 0 : tensor.numel() / tensor.size(-1);
}

template <typename V>
inline auto max_of(V vector) {
  return at::vec::vec_reduce_all([](V& x, V& y) { return at::vec::maximum(x, y); }, vector);
}

}  // namespace isthmus::kernels
