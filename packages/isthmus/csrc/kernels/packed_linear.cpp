// Linear layers with weights in oneDNN's own layout, reordered once for a number of rows.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <optional>

namespace isthmus::kernels {
namespace {

using at::Tensor;

struct PackedWeight : torch::CustomClassHolder {
  explicit PackedWeight(Tensor weight) : weight(std::move(weight)) {}
  const Tensor weight;  // opaque
};

using Handle = c10::intrusive_ptr<PackedWeight>;

Tensor call_onednn(const char* name, torch::jit::Stack stack) {
  c10::Dispatcher::singleton().findSchemaOrThrow(name, "").callBoxed(stack);
  return stack.back().toTensor();
}

// weight: [out features, in features]; rows: of the inputs that the layout is chosen for.
Handle pack_linear(const Tensor& weight, int64_t rows) {
  return c10::make_intrusive<PackedWeight>(
      call_onednn("mkldnn::_reorder_linear_weight", {weight.contiguous(), rows}));
}

Tensor packed_linear(const Tensor& input, const Handle& weight, const std::optional<Tensor>& bias) {
  const c10::List<std::optional<at::Scalar>> none;
  return call_onednn("mkldnn::_linear_pointwise",
                     {input, weight->weight, bias, "none", none, std::optional<std::string>("")});
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
