// Reductions, scans, sorting.
#include <algorithm>

#include "driver/operators/library.h"
#include "driver/operators/views.h"

namespace isthmus::npu {

using namespace aclnn;

namespace {

bool is_empty(const DLTensor* tensor) {
  return std::find(tensor->shape, tensor->shape + tensor->ndim, 0) != tensor->shape + tensor->ndim;
}

}  // namespace

ISTHMUS_ACLNN(aten_sum, kStrided, ReduceSum, self, dims_or_all(self), false, out, out)
ISTHMUS_ACLNN(aten_sum_dim_IntList, kStrided, ReduceSum, self, dims_or_all(self, dim), keepdim, out, out)
ISTHMUS_ACLNN(aten_mean, kStrided, Mean, self, dims_or_all(self), false, out, out)
ISTHMUS_ACLNN(aten_mean_dim, kStrided, Mean, self, dims_or_all(self, dim), keepdim, out, out)
ISTHMUS_ACLNN(aten_prod, kStrided, Prod, self, out, out)
ISTHMUS_ACLNN(aten_prod_dim_int, kStrided, ProdDim, self, dim, keepdim, out, out)
ISTHMUS_ACLNN(aten_amax, kStrided, Amax, self, dims_or_all(self, dim), keepdim, out)
ISTHMUS_ACLNN(aten_amin, kStrided, Amin, self, dims_or_all(self, dim), keepdim, out)
ISTHMUS_ACLNN(aten_all, kStrided, All, self, dims_or_all(self), false, out)
ISTHMUS_ACLNN(aten_any, kStrided, Any, self, dims_or_all(self), false, out)
ISTHMUS_ACLNN(aten_any_dim, kStrided, Any, self, Ints{dim}, keepdim, out)
ISTHMUS_ACLNN(aten_any_dims, kStrided, Any, self, dims_or_all(self, dim), keepdim, out)
ISTHMUS_ACLNN(aten_max_dim, kStrided, MaxDim, self, dim, keepdim, values, indices)
ISTHMUS_ACLNN(aten_min_dim, kStrided, MinDim, self, dim, keepdim, values, indices)
ISTHMUS_ACLNN(aten_linalg_vector_norm, kStrided, LinalgVectorNorm, self, ord, dims_or_all(self, dim), keepdim,
              out, out)
ISTHMUS_ACLNN(aten_cumsum, kStrided, Cumsum, self, dim, out, out)
ISTHMUS_ACLNN(aten_sort, kStrided, Sort, self, false, dim, descending, values, indices)
ISTHMUS_ACLNN(aten_sort_stable, kStrided, Sort, self, stable != nullptr && *stable, dim, descending, values,
              indices)
ISTHMUS_ACLNN(aten_topk, kStrided, Topk, self, k, dim, largest, sorted, values, indices)
ISTHMUS_ACLNN(aten_histc, kStrided, Histc, self, bins, min, max, out)

// aclnn computes nothing for an empty tensor, and says nothing.
ISTHMUS_ACLNN_KERNEL(aten_max, kStrided, &Max) {
  return is_empty(self) ? ISTHMUS_INVALID_ARGUMENT : Max(context, self, out);
}

ISTHMUS_ACLNN_KERNEL(aten_min, kStrided, &Min) {
  return is_empty(self) ? ISTHMUS_INVALID_ARGUMENT : Min(context, self, out);
}

// Without a dimension the position is that in the flattened tensor.
ISTHMUS_ACLNN_KERNEL(aten_argmax, 0, &ArgMax) {
  if (dim != nullptr) return ArgMax(context, self, *dim, keepdim, out);
  return ArgMax(context, View(self).flatten(), 0, false, View(out).flatten().select(0, 0));
}

ISTHMUS_ACLNN_KERNEL(aten_argmin, 0, &ArgMin) {
  if (dim != nullptr) return ArgMin(context, self, *dim, keepdim, out);
  return ArgMin(context, View(self).flatten(), 0, false, View(out).flatten().select(0, 0));
}

ISTHMUS_ACLNN_KERNEL(aten_var_correction, kStrided, &VarCorrection) {
  const double given = correction == nullptr ? 1 : correction->as_double;
  const auto whole = static_cast<int64_t>(given);
  if (static_cast<double>(whole) != given) return ISTHMUS_UNSUPPORTED;
  return VarCorrection(context, self, dims_or_all(self, dim), whole, keepdim, out);
}

}  // namespace isthmus::npu
