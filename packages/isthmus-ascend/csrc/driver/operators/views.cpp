#include "driver/operators/views.h"

#include <algorithm>
#include <numeric>

namespace isthmus::npu {

View::View(const DLTensor* of)
    : tensor_(*of), shape_(of->shape, of->shape + of->ndim), strides_(of->strides, of->strides + of->ndim) {
  point();
}

View::View(std::vector<int64_t> shape, DLDataType dtype) : tensor_{}, shape_(std::move(shape)) {
  tensor_.dtype = dtype;
}

void View::point() {
  tensor_.ndim = static_cast<int32_t>(shape_.size());
  tensor_.shape = shape_.data();
  tensor_.strides = strides_.data();
}

int64_t View::lay_out() {
  strides_.resize(shape_.size());
  int64_t elements = 1;
  for (size_t i = shape_.size(); i-- > 0; elements *= shape_[i]) strides_[i] = elements;
  point();
  return elements;
}

View& View::reshape(std::vector<int64_t> shape) {
  shape_ = std::move(shape);
  lay_out();
  return *this;
}

View& View::flatten() {
  return reshape({std::accumulate(shape_.begin(), shape_.end(), int64_t{1}, std::multiplies<>())});
}

View& View::insert(int64_t dim, int64_t size) {
  shape_.insert(shape_.begin() + dim, size);
  strides_.insert(strides_.begin() + dim, 0);
  point();
  return *this;
}

View& View::transpose(size_t a, size_t b) {
  std::swap(shape_[a], shape_[b]);
  std::swap(strides_[a], strides_[b]);
  return *this;
}

View& View::slice(int64_t dim, int64_t start, int64_t end, int64_t step) {
  const auto d = static_cast<size_t>(wrapped(dim, tensor_.ndim));
  const auto inside = [&](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + shape_[d] : at, 0, shape_[d]);
  };
  const int64_t first = inside(start), count = inside(end) - first;
  const int64_t bytes = (tensor_.dtype.bits + 7) / 8;
  tensor_.data = static_cast<char*>(tensor_.data) + first * strides_[d] * bytes;
  shape_[d] = count <= 0 ? 0 : (count + step - 1) / step;
  strides_[d] *= step;
  return *this;
}

View& View::select(int64_t dim, int64_t index) {
  const auto d = static_cast<size_t>(wrapped(dim, tensor_.ndim));
  const int64_t at = index < 0 ? index + shape_[d] : index;
  slice(static_cast<int64_t>(d), at, at + 1, 1);
  shape_.erase(shape_.begin() + static_cast<std::ptrdiff_t>(d));
  strides_.erase(strides_.begin() + static_cast<std::ptrdiff_t>(d));
  point();
  return *this;
}

Temporary::Temporary(isthmus_context* context, const DLTensor* like, DLDataType dtype)
    : Temporary(context, sizes(like), dtype) {}

Temporary::Temporary(isthmus_context* context, std::vector<int64_t> shape, DLDataType dtype)
    : View(std::move(shape), dtype) {
  const int64_t bytes = lay_out() * (dtype.bits + 7) / 8;
  if (bytes != 0) tensor_.data = context->workspace(context, static_cast<size_t>(bytes));
  ready_ = bytes == 0 || tensor_.data != nullptr;
}

int64_t wrapped(int64_t dim, int rank) { return dim < 0 ? dim + std::max(rank, 1) : dim; }

std::vector<int64_t> sizes(const DLTensor* tensor) { return {tensor->shape, tensor->shape + tensor->ndim}; }

std::vector<int64_t> dims_or_all(const DLTensor* tensor, isthmus_list dims) {
  std::vector<int64_t> found;
  for (int64_t i = 0; i < dims.size; ++i) found.push_back(isthmus_list_int(dims, i));
  if (!found.empty()) return found;
  found.resize(static_cast<size_t>(tensor->ndim));
  std::iota(found.begin(), found.end(), 0);
  return found;
}

}  // namespace isthmus::npu
