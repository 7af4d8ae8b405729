#include "dispatch/index_checks.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>

namespace isthmus {
namespace {

using Arguments = std::span<const TVMFFIAny>;

const TVMFFIAny& argument_at(Arguments arguments, int position) {
  return position < 0 ? arguments[arguments.size() + position] : arguments[position];
}

const DLTensor* tensor_of(const TVMFFIAny& argument) {
  return argument.type_index == kTVMFFIDLTensorPtr ? static_cast<const DLTensor*>(argument.v_ptr) : nullptr;
}

// The first index out of bounds in the dimensions from `dim` on.
template <class T>
std::optional<int64_t> find(const T* data, const DLTensor& tensor, int dim, const IndexBounds& bounds) {
  if (dim == tensor.ndim) return bounds.allow(*data) ? std::nullopt : std::optional<int64_t>(*data);
  // The elements of an expanded dimension are one element.
  const int64_t size = tensor.strides[dim] == 0 ? std::min<int64_t>(tensor.shape[dim], 1) : tensor.shape[dim];
  const int64_t stride = tensor.strides[dim];
  if (dim + 1 < tensor.ndim) {
    for (int64_t i = 0; i < size; ++i)
      if (const auto found = find(data + i * stride, tensor, dim + 1, bounds)) return found;
    return std::nullopt;
  }
  for (int64_t i = 0; i < size; ++i)
    if (!bounds.allow(data[i * stride])) return data[i * stride];
  return std::nullopt;
}

struct Indexed {
  int64_t dim, size;
};

Indexed indexed_by(const IndexRule& rule, Arguments arguments, int item) {
  const TVMFFIAny& of = argument_at(arguments, rule.of);
  const DLTensor* tensor = tensor_of(of);
  if (tensor == nullptr) return {0, of.v_int64};
  if (tensor->ndim == 0) return {0, 1};
  int64_t dim = rule.each ? item : rule.dim;
  if (rule.dim_from != IndexRule::kAbsent) dim = argument_at(arguments, rule.dim_from).v_int64;
  if (dim < 0) dim += tensor->ndim;
  int64_t size = 1;
  for (int i = 0; i < rule.dims; ++i) size *= tensor->shape[dim + i];
  return {dim, size};
}

// Whether a call whose results have no elements checks indices into this size.
bool checks_without_elements(const IndexRule& rule, Arguments arguments, int64_t size) {
  if (rule.empty == IndexRule::kAll) return true;
  const DLTensor* const of = tensor_of(argument_at(arguments, rule.of));
  return size == 0 && (rule.empty == IndexRule::kSizeOfZero || of == nullptr || of->ndim <= 1);
}

void check_argument(const IndexRule& rule, Arguments arguments, const TVMFFIAny& argument, int item,
                    bool has_elements) {
  const DLTensor* tensor = tensor_of(argument);
  if (tensor == nullptr) return;
  const auto [dim, size] = indexed_by(rule, arguments, item);
  if (!has_elements && !checks_without_elements(rule, arguments, size)) return;
  IndexBounds bounds{rule.negative ? -size : 0, size};
  if (rule.ignored != IndexRule::kAbsent) bounds.ignored = argument_at(arguments, rule.ignored).v_int64;
  const std::optional<int64_t> found = find_out_of_bounds(*tensor, bounds);
  if (C10_LIKELY(!found)) return;
  TORCH_CHECK_INDEX(rule.argument != "target", "Target ", *found, " is out of bounds.");
  const std::string text =
      c10::str("index ", *found, " is out of bounds for dimension ", dim, " with size ", size);
  TORCH_CHECK_INDEX(!rule.index_error, text);
  TORCH_CHECK(false, text);
}

}  // namespace

std::optional<int64_t> find_out_of_bounds(const DLTensor& tensor, const IndexBounds& bounds) {
  for (int i = 0; i < tensor.ndim; ++i)
    if (tensor.shape[i] == 0) return std::nullopt;
  if (tensor.dtype.code != kDLInt) return std::nullopt;
  if (tensor.dtype.bits == 64) return find(static_cast<const int64_t*>(tensor.data), tensor, 0, bounds);
  if (tensor.dtype.bits == 32) return find(static_cast<const int32_t*>(tensor.data), tensor, 0, bounds);
  return std::nullopt;
}

void check_indices(const IndexRule& rule, Arguments arguments, bool has_elements) {
  if (!rule.each) {
    check_argument(rule, arguments, argument_at(arguments, rule.position), 0, has_elements);
    return;
  }
  const auto items = static_cast<int>(arguments[rule.position].v_int64);
  for (int i = 0; i < items; ++i)
    check_argument(rule, arguments, arguments[rule.position + 1 + i], i, has_elements);
}

}  // namespace isthmus
