// Operators that move elements: joining, indexing, padding.
#include <array>
#include <cstring>

#include "driver/operators/library.h"
#include "driver/operators/views.h"

namespace isthmus::npu {

using namespace aclnn;

ISTHMUS_ACLNN(aten_cat, kStrided, Cat, tensors, dim, out)
ISTHMUS_ACLNN(aten_stack, kStrided, Stack, tensors, dim, out)
ISTHMUS_ACLNN(aten_flip, kStrided, Flip, self, dims, out)
ISTHMUS_ACLNN(aten_roll, kStrided, Roll, self, shifts, dims, out)
ISTHMUS_ACLNN(aten_repeat, kStrided, Repeat, self, repeats, out)
ISTHMUS_ACLNN(aten_tril, kElementwise, Tril, self, diagonal, out)
ISTHMUS_ACLNN(aten_triu, kElementwise, Triu, self, diagonal, out)
ISTHMUS_ACLNN(aten_constant_pad_nd, kStrided, ConstantPadNd, self, pad, value, out)
ISTHMUS_ACLNN(aten_reflection_pad1d, kStrided, ReflectionPad1d, self, padding, out)
ISTHMUS_ACLNN(aten_reflection_pad2d, kStrided, ReflectionPad2d, self, padding, out)
ISTHMUS_ACLNN(aten_reflection_pad3d, kStrided, ReflectionPad3d, self, padding, out)
ISTHMUS_ACLNN(aten_replication_pad1d, kStrided, ReplicationPad1d, self, padding, out)
ISTHMUS_ACLNN(aten_replication_pad2d, kStrided, ReplicationPad2d, self, padding, out)
ISTHMUS_ACLNN(aten_replication_pad3d, kStrided, ReplicationPad3d, self, padding, out)

ISTHMUS_ACLNN(aten_gather, kStrided, Gather, self, dim, index, out)
ISTHMUS_ACLNN(aten_index_select, kStrided, IndexSelect, self, dim, index, out)
ISTHMUS_ACLNN(aten_index_add, kStrided, IndexAdd, self, dim, index, source, alpha, out)
ISTHMUS_ACLNN(aten_scatter_add, kStrided, ScatterAdd, self, dim, index, src, out)
ISTHMUS_ACLNN(aten_scatter_src, kStrided, Scatter, self, dim, index, src, 0, out)
ISTHMUS_ACLNN(aten_scatter_value, kStrided, ScatterValue, self, dim, index, value, 0, out)
ISTHMUS_ACLNN(aten_embedding, kStrided, Embedding, weight, indices, out)
ISTHMUS_ACLNN(aten_embedding_dense_backward, kStrided, EmbeddingDenseBackward, grad_output, indices,
              num_weights, padding_idx, scale_grad_by_freq, out)

ISTHMUS_ACLNN_KERNEL(aten_scatter_reduce_two, kStrided, &ScatterReduce) {
  constexpr std::array<const char*, 6> kReductions = {"none", "sum", "prod", "amax", "amin", "mean"};
  for (size_t i = 1; i < kReductions.size(); ++i) {
    if (std::strcmp(reduce, kReductions[i]) == 0)
      return ScatterReduce(context, self, dim, index, src, i, include_self, out);
  }
  return ISTHMUS_UNSUPPORTED;
}

// For a dimension without an index the vendor's functions take a tensor without elements, of the dtype of
// self.
static std::vector<const DLTensor*> index_tensors(isthmus_list indices, const DLTensor* none) {
  std::vector<const DLTensor*> tensors;
  for (int64_t i = 0; i < indices.size; ++i) {
    const DLTensor* const index = isthmus_list_tensor(indices, i);
    tensors.push_back(index == nullptr ? none : index);
  }
  return tensors;
}

ISTHMUS_ACLNN_KERNEL(aten_index_Tensor, kStrided, &Index) {
  ISTHMUS_TEMPORARY(none, std::vector<int64_t>{0}, self->dtype);
  return Index(context, self, index_tensors(indices, none), out);
}

// The rest of the outputs is what the input has.
ISTHMUS_ACLNN_KERNEL(aten_index_put, kStrided, &InplaceCopy, &IndexPutImpl) {
  ISTHMUS_TRY(InplaceCopy(context, out, self));
  ISTHMUS_TEMPORARY(none, std::vector<int64_t>{0}, self->dtype);
  return IndexPutImpl(context, out, index_tensors(indices, none), values, accumulate, false);
}

ISTHMUS_ACLNN_KERNEL(aten_masked_fill_Scalar, kStrided, &InplaceCopy, &InplaceMaskedFillScalar) {
  ISTHMUS_TRY(InplaceCopy(context, out, self));
  return InplaceMaskedFillScalar(context, out, mask, value);
}

ISTHMUS_ACLNN_KERNEL(aten_masked_scatter, kStrided, &InplaceCopy, &InplaceMaskedScatter) {
  ISTHMUS_TRY(InplaceCopy(context, out, self));
  return InplaceMaskedScatter(context, out, mask, source);
}

ISTHMUS_ACLNN_KERNEL(aten_select_scatter, kStrided, &InplaceCopy) {
  ISTHMUS_TRY(InplaceCopy(context, out, self));
  return InplaceCopy(context, View(out).select(dim, index), src);
}

ISTHMUS_ACLNN_KERNEL(aten_slice_scatter, kStrided, &InplaceCopy) {
  ISTHMUS_TRY(InplaceCopy(context, out, self));
  View part(out);
  part.slice(dim, start == nullptr ? 0 : *start, end == nullptr ? INT64_MAX : *end, step);
  return InplaceCopy(context, part, src);
}

ISTHMUS_ACLNN_KERNEL(aten_select_backward, kStrided, &InplaceZero, &InplaceCopy) {
  ISTHMUS_TRY(InplaceZero(context, out));
  return InplaceCopy(context, View(out).select(dim, index), grad_output);
}

ISTHMUS_ACLNN_KERNEL(aten_slice_backward, kStrided, &InplaceZero, &InplaceCopy) {
  ISTHMUS_TRY(InplaceZero(context, out));
  return InplaceCopy(context, View(out).slice(dim, start, end, step), grad_output);
}

}  // namespace isthmus::npu
