// The tensors of one argument of a boxed call.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

namespace isthmus {

// Calls the function with each tensor of a value: a tensor, or a list of them.
template <class Visit>
void for_each_tensor(const c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    for (const c10::IValue& item : value.toListRef())
      if (item.isTensor()) visit(item.toTensor());
  }
}

template <class Visit>
void for_each_defined_tensor(const c10::IValue& value, Visit&& visit) {
  for_each_tensor(value, [&](const at::Tensor& tensor) {
    if (tensor.defined()) visit(tensor);
  });
}

}  // namespace isthmus
