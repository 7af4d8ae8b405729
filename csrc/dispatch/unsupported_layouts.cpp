// Route none: tensor layouts that a chip does not support are refused in one line, by every operator.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace isthmus {
namespace {

void refuse_layout(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, op.operator_name(),
                              ": sparse, quantized and nested tensors are not supported ",
                              "on chip; keep them on CPU.");
}

// nn.TransformerEncoder calls it before it makes nested tensors, and takes the padded path if it is false.
bool no_nested_tensor(const at::Tensor&, const at::Tensor&) { return false; }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_nested_tensor_from_mask_left_aligned", TORCH_FN(no_nested_tensor));
}
TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_layout>());
}
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_layout>());
}
TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_layout>());
}
TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_layout>());
}

}  // namespace
}  // namespace isthmus
