// Native route: which tensors may exchange their data. PyTorch's list of devices leaves out plugins, so that
// module.to("chip") would make new parameters and an optimizer made before would keep training the old ones.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "dispatch/routes.h"

namespace isthmus {
namespace {

bool has_compatible_layout(const at::Tensor& self, const at::Tensor& from) {
  ISTHMUS_COUNT("aten::_has_compatible_shallow_copy_type", Route::kNative);
  return self.layout() == from.layout();
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_layout));
}
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_layout));
}

}  // namespace
}  // namespace isthmus
