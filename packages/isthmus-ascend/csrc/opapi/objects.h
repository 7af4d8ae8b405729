// The objects that callers of aclnn functions create: opaque to them, ATen's values inside.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <c10/core/impl/SizesAndStrides.h>

#include <vector>

#include "opapi/registry.h"

namespace isthmus::ascend {

// A view of memory. The at::Tensor of it is made by the thread that computes with it: memory that one thread
// writes and another reads costs more than the allocation.
struct Descriptor {
  void* data = nullptr;
  size_t bytes = 0;  // from data to the end of the last element
  int64_t offset = 0;
  c10::impl::SizesAndStrides layout;
  at::ScalarType dtype = at::ScalarType::Undefined;  // Undefined for a null tensor
  at::Tensor owner;  // owner of memory that is not the caller's; the tensor itself
};

struct Objects {
  Registry<Descriptor> tensors{1};
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
std::optional<at::ScalarType> scalar_type_of(int acl_data_type);

// A view of memory, which is not looked up. Throws c10::Error if its bytes have no number.
Descriptor describe(at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset, at::ScalarType dtype,
                    void* data);

// Undefined for a null tensor.
at::Tensor view(const Descriptor& descriptor);

}  // namespace isthmus::ascend
