// Linear layers with weights in oneDNN's own layout, reordered once for a number of rows.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <optional>
#include <string_view>

namespace isthmus::kernels {
namespace {

using at::Tensor;

struct PackedWeight : torch::CustomClassHolder {
  explicit PackedWeight(Tensor weight) : weight(std::move(weight)) {}
  const Tensor weight;  // opaque
};

using Handle = c10::intrusive_ptr<PackedWeight>;

template <class Signature>
c10::TypedOperatorHandle<Signature> onednn(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

// weight: [out features, in features]; rows: of the inputs that the layout is chosen for.
Handle pack_linear(const Tensor& weight, int64_t rows) {
  static const auto reorder =
      onednn<Tensor(const Tensor&, std::optional<int64_t>)>("mkldnn::_reorder_linear_weight");
  return c10::make_intrusive<PackedWeight>(reorder.call(weight.contiguous(), rows));
}

Tensor packed_linear(const Tensor& input, const Handle& weight, const std::optional<Tensor>& bias) {
  using Scalars = c10::List<std::optional<at::Scalar>>;
  static const auto multiply =
      onednn<Tensor(const Tensor&, const Tensor&, const std::optional<Tensor>&, std::string_view, Scalars,
                    std::optional<std::string_view>)>("mkldnn::_linear_pointwise");
  return multiply.call(input, weight->weight, bias, "none", Scalars(), "");
}

// like: a tensor on the device that the result is made on.
Tensor unpack_linear(const Tensor& /*like*/, const Handle& weight) { return weight->weight.to_dense(); }

TORCH_LIBRARY_FRAGMENT(isthmus_cpu, m) {
  m.class_<PackedWeight>("PackedWeight");
  m.def("pack_linear", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(pack_linear)));
  m.def("packed_linear", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(packed_linear)));
  m.def("unpack_linear", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(unpack_linear)));
}

}  // namespace
}  // namespace isthmus::kernels
