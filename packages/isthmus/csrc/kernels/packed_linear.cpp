// Linear layers with weights in oneDNN's own layout, reordered once for a number of rows.
//
// Where oneDNN has no bfloat16, a weight stays as it is, and many rows are multiplied in float32, a block of
// the weight's rows at a time: PyTorch's own kernel multiplies one element after the other there.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "kernels/invariant_products.h"

namespace isthmus::kernels {
namespace {

using at::Tensor;

constexpr int64_t kFewRows = 3, kManyRows = 32;  // of inputs: from there on other kernels are faster
constexpr int64_t kBlock = 64 << 10;             // elements of a weight

struct PackedWeight : torch::CustomClassHolder {
  PackedWeight(Tensor weight, bool dense) : weight(std::move(weight)), dense(dense) {}
  const Tensor weight;
  const bool dense;  // or opaque
};

using Handle = c10::intrusive_ptr<PackedWeight>;

template <class Signature>
c10::TypedOperatorHandle<Signature> onednn(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

// weight: [out features, in features]; rows: of the inputs that the layout is chosen for.
Handle pack_linear(const Tensor& weight, int64_t rows) {
  if (weight.scalar_type() == at::kBFloat16 && !onednn<bool()>("mkldnn::_is_mkldnn_bf16_supported").call())
    return c10::make_intrusive<PackedWeight>(weight.clone(at::MemoryFormat::Contiguous), true);
  static const auto reorder =
      onednn<Tensor(const Tensor&, std::optional<int64_t>)>("mkldnn::_reorder_linear_weight");
  return c10::make_intrusive<PackedWeight>(reorder.call(weight.contiguous(), rows), false);
}

// weight: [out features, in features], widened by blocks that fit into the cache.
Tensor widened_linear(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias) {
  const int64_t features = weight.size(0), terms = weight.size(1);
  const Tensor x = input.reshape({-1, terms});
  if (x.size(0) < kFewRows) return at::linear(input, weight, bias);
  auto sizes = input.sizes().vec();
  sizes.back() = features;
  if (x.size(0) < kManyRows)
    return invariant_products(x.unsqueeze(0), weight.t().unsqueeze(0), bias, 1, 1).view(sizes);
  const Tensor wide = x.to(at::kFloat), out = at::empty({x.size(0), features}, x.options());
  const int64_t block = std::clamp<int64_t>(kBlock / terms, 16, 128);
  at::parallel_for(0, (features + block - 1) / block, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first * block; i < std::min(last * block, features); i += block) {
      const int64_t end = std::min(i + block, features);
      Tensor products = at::mm(wide, weight.slice(0, i, end).to(at::kFloat).t());
      if (bias) products.add_(bias->slice(0, i, end));
      out.slice(1, i, end).copy_(products);
    }
  });
  return out.view(sizes);
}

Tensor packed_linear(const Tensor& input, const Handle& weight, const std::optional<Tensor>& bias) {
  if (weight->dense) return widened_linear(input, weight->weight, bias);
  using Scalars = c10::List<std::optional<at::Scalar>>;
  static const auto multiply =
      onednn<Tensor(const Tensor&, const Tensor&, const std::optional<Tensor>&, std::string_view, Scalars,
                    std::optional<std::string_view>)>("mkldnn::_linear_pointwise");
  return multiply.call(input, weight->weight, bias, "none", Scalars(), "");
}

// like: a tensor on the device that the result is made on.
Tensor unpack_linear(const Tensor& /*like*/, const Handle& weight) {
  return weight->dense ? weight->weight.clone() : weight->weight.to_dense();
}

TORCH_LIBRARY_FRAGMENT(isthmus_cpu, m) {
  m.class_<PackedWeight>("PackedWeight");
  m.def("pack_linear", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(pack_linear)));
  m.def("packed_linear", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(packed_linear)));
  m.def("unpack_linear", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(unpack_linear)));
}

}  // namespace
}  // namespace isthmus::kernels
