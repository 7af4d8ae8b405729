// The objects that callers of aclnn functions create: opaque to them, ATen's values inside.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <vector>

struct aclTensor {
  at::Tensor tensor;  // over the caller's memory; an executor that outlives this object shares it
};

struct aclScalar {
  c10::Scalar scalar;
};

struct aclIntArray {
  std::vector<int64_t> values;
};

struct aclFloatArray {
  std::vector<float> values;
};

struct aclBoolArray {
  std::vector<bool> values;
};

struct aclTensorList {
  std::vector<aclTensor*> elements;  // destroyed with the list
};

struct aclScalarList {
  std::vector<aclScalar*> elements;  // destroyed with the list
};

namespace isthmus::ascend {

// The dtype of an aclDataType; nullopt for one that PyTorch's CPU kernels have no type for.
std::optional<at::ScalarType> scalar_type(int acl_data_type);

}  // namespace isthmus::ascend
