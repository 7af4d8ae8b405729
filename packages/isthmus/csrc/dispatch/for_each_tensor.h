// The tensors of one argument of a boxed call: visited, or replaced.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/clone.h>

#include <optional>

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

// The value with the function's result in place of each tensor, undefined ones included.
template <class Change>
c10::IValue map_tensors(const c10::IValue& value, Change&& change) {
  if (value.isTensor()) return change(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& item : value.toTensorVector()) list.push_back(change(item));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& item : value.toOptionalTensorVector())
      list.push_back(item ? std::make_optional(change(*item)) : std::nullopt);
    return list;
  }
  return value;
}

// A copy of a tensor from the CPU whose owner may change it later: a number stays a number.
inline at::Tensor copy_number(const at::Tensor& number) {
  at::Tensor copy = number.clone();
  copy.unsafeGetTensorImpl()->set_wrapped_number(number.unsafeGetTensorImpl()->is_wrapped_number());
  return copy;
}

}  // namespace isthmus
