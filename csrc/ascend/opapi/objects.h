// The objects that callers of aclnn functions create: opaque to them, ATen's values inside.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <vector>

#include "ascend/opapi/registry.h"

namespace isthmus::ascend {

struct Objects {
  Registry<at::Tensor> tensors{1};  // over the caller's memory; an executor that outlives one shares it
  Registry<c10::Scalar> scalars{2};
  Registry<std::vector<int64_t>> ints{3};
  Registry<std::vector<float>> floats{4};
  Registry<std::vector<bool>> bools{5};
  Registry<std::vector<const void*>> tensor_lists{6};  // handles; destroyed with the list
  Registry<std::vector<const void*>> scalar_lists{7};
};

// Never destroyed: applications destroy their objects in destructors of globals.
Objects& objects();

// The dtype of an aclDataType; nullopt for one that PyTorch's CPU kernels have no type for.
std::optional<at::ScalarType> scalar_type(int acl_data_type);

// A tensor over memory, which is not looked up. Throws c10::Error without a dtype, or if its bytes have no
// number.
at::Tensor view(at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset, int acl_data_type,
                void* data);

}  // namespace isthmus::ascend
