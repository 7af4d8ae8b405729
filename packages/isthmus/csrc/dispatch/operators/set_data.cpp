// Native route: which tensors may exchange their data. PyTorch's list of devices leaves out plugins, so that
// module.to("chip") would make new parameters and an optimizer made before would keep training the old ones.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "dispatch/statistics.h"

namespace isthmus {
namespace {

// Plain strided tensors; the others have a TensorImpl of another class.
bool is_dense(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet other({c10::DispatchKey::Quantized, c10::DispatchKey::NestedTensor,
                                       c10::DispatchKey::Functionalize, c10::DispatchKey::FuncTorchBatched,
                                       c10::DispatchKey::FuncTorchGradWrapper});
  return tensor.layout() == at::kStrided && !tensor.key_set().has_any(other);
}

bool has_compatible_layout(const at::Tensor& self, const at::Tensor& from) {
  ISTHMUS_COUNT("aten::_has_compatible_shallow_copy_type", Route::kNative);
  return is_dense(self) && is_dense(from);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_layout));
}
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_layout));
}

}  // namespace
}  // namespace isthmus
