// Flags that a user attaches to a tensor (torch._utils.set_tensor_metadata); torch.save keeps them for the
// chip.
#include <torch/csrc/jit/serialization/pickler_helper.h>

#include <string>
#include <unordered_map>
#include <utility>

#include "core/runtime.h"

namespace isthmus {
namespace {

using Flags = std::unordered_map<std::string, bool>;

// Never changed once attached, so tensors may share it.
struct Metadata final : c10::BackendMeta {
  explicit Metadata(Flags flags) : flags(std::move(flags)) {}
  const Flags flags;
};

void get(const at::Tensor& tensor, Flags& flags) {
  const auto* metadata = dynamic_cast<const Metadata*>(tensor.unsafeGetTensorImpl()->get_backend_meta());
  if (metadata != nullptr) flags.insert(metadata->flags.begin(), metadata->flags.end());
}

void set_flags(const at::Tensor& tensor, Flags& flags) {
  if (!flags.empty()) tensor.unsafeGetTensorImpl()->set_backend_meta(c10::make_intrusive<Metadata>(flags));
}

[[maybe_unused]] const bool registered = [] {
  torch::jit::TensorBackendMetaRegistry(kChip, &get, &set_flags);
  return true;
}();

}  // namespace
}  // namespace isthmus
