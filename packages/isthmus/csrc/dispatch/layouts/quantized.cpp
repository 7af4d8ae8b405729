#include "dispatch/layouts/quantized.h"

#include <ATen/ops/_empty_affine_quantized.h>
#include <ATen/ops/_empty_per_channel_affine_quantized.h>
#include <ATen/ops/quantize_per_channel.h>
#include <ATen/ops/quantize_per_tensor.h>
#include <ATen/quantized/QTensorImpl.h>
#include <torch/library.h>

#include "core/runtime.h"

namespace isthmus {
namespace {

using at::PerChannelAffineFloatQParamsQuantizer;
using at::PerChannelAffineQuantizer;

at::QTensorImpl& quantized_impl(const at::Tensor& tensor) {
  return *static_cast<at::QTensorImpl*>(tensor.unsafeGetTensorImpl());
}

const PerChannelAffineQuantizer* channels_of(const at::QuantizerPtr& quantizer) {
  return dynamic_cast<const PerChannelAffineQuantizer*>(quantizer.get());
}

at::QuantizerPtr with_parts(const at::QuantizerPtr& quantizer, const PartMap& map) {
  const PerChannelAffineQuantizer* const channels = channels_of(quantizer);
  if (channels == nullptr) return quantizer;
  const at::Tensor scales = map(channels->scales()), zero_points = map(channels->zero_points());
  if (quantizer->qscheme() == at::kPerChannelAffineFloatQParams)
    return c10::make_intrusive<PerChannelAffineFloatQParamsQuantizer>(quantizer->scalar_type(), scales,
                                                                      zero_points, channels->axis());
  return c10::make_intrusive<PerChannelAffineQuantizer>(quantizer->scalar_type(), scales, zero_points,
                                                        channels->axis());
}

// A dense tensor over the same storage.
at::Tensor dense(const at::Tensor& tensor, at::ScalarType dtype) {
  const auto key = tensor.is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::PrivateUse1;
  return at::Tensor(
      c10::make_intrusive<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(tensor.storage()),
                                           c10::DispatchKeySet(key), c10::scalarTypeToTypeMeta(dtype)));
}

// Elements may have fewer than eight bits.
at::Tensor bytes(const at::Tensor& tensor) {
  at::Tensor view = dense(tensor, at::kByte);
  view.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<int64_t>(tensor.storage().nbytes())});
  return view;
}

bool is_sub_byte(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kQUInt4x2 || tensor.scalar_type() == at::kQUInt2x4;
}

at::Tensor integers(const at::Tensor& tensor) {
  at::Tensor view = dense(tensor, c10::toUnderlying(tensor.scalar_type()));
  view.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(),
                                                    tensor.storage_offset());
  return view;
}

void copy_integers(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (!is_sub_byte(to)) {
    integers(to).copy_(integers(from), non_blocking);
    return;
  }
  for (const at::Tensor& tensor : {from, to})
    TORCH_CHECK_NOT_IMPLEMENTED(
        tensor.sizes() == to.sizes() && tensor.is_contiguous() && tensor.storage_offset() == 0 &&
            tensor.storage().nbytes() == to.storage().nbytes(),
        "copies of ", to.scalar_type(),
        " tensors on chip take whole, contiguous tensors of one shape; call contiguous() on the CPU.");
  bytes(to).copy_(bytes(from), non_blocking);
}

const at::PerTensorAffineQuantizer& affine_of(const at::QuantizerPtr& quantizer) {
  const auto* const affine = dynamic_cast<const at::PerTensorAffineQuantizer*>(quantizer.get());
  TORCH_CHECK(affine != nullptr,
              "the quantized tensor has no scale and zero point; make it by "
              "torch.quantize_per_tensor or torch._empty_affine_quantized.");
  return *affine;
}

at::Tensor quantize(const at::Tensor& numbers, const at::QuantizerPtr& quantizer) {
  if (const PerChannelAffineQuantizer* const channels = channels_of(quantizer))
    return at::quantize_per_channel(numbers, channels->scales(), channels->zero_points(), channels->axis(),
                                    quantizer->scalar_type());
  const at::PerTensorAffineQuantizer& affine = affine_of(quantizer);
  return at::quantize_per_tensor(numbers, affine.scale(), affine.zero_point(), quantizer->scalar_type());
}

// Same rules as on the CPU: numbers are quantized; the quantizer of a quantized source is copied too.
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  TORCH_CHECK(
      to.is_quantized(),
      "Copying from quantized Tensor to non-quantized Tensor is not allowed, please use dequantize to "
      "get a float Tensor from a quantized Tensor");
  if (!from.is_quantized()) {
    const at::Tensor numbers = from.to(to.device(), at::kFloat).expand(to.sizes()).contiguous();
    copy_integers(quantize(numbers, quantized_impl(to).quantizer()), to, non_blocking);
    return to;
  }
  TORCH_CHECK(from.scalar_type() == to.scalar_type(), "Quantized Tensors need to have the same dtype, found ",
              from.scalar_type(), " and ", to.scalar_type());
  quantized_impl(to).set_quantizer_(with_parts(quantized_impl(from).quantizer(),
                                               [&](const at::Tensor& part) { return part.to(to.device()); }));
  copy_integers(from, to, non_blocking);
  return to;
}

at::Tensor empty_quantized(at::IntArrayRef size, const at::Tensor& like, std::optional<at::ScalarType>,
                           std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>,
                           std::optional<at::MemoryFormat> format) {
  const at::QuantizerPtr quantizer = quantized_impl(like).quantizer();
  const auto options =
      at::TensorOptions().dtype(quantizer->scalar_type()).device(device.value_or(like.device()));
  if (const PerChannelAffineQuantizer* const channels = channels_of(quantizer))
    return at::_empty_per_channel_affine_quantized(size, channels->scales().to(options.device()),
                                                   channels->zero_points().to(options.device()),
                                                   channels->axis(), options, format);
  const at::PerTensorAffineQuantizer& affine = affine_of(quantizer);
  return at::_empty_affine_quantized(size, options, affine.scale(), affine.zero_point(), format);
}

TORCH_LIBRARY_IMPL(aten, QuantizedPrivateUse1, m) {
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("empty_quantized", TORCH_FN(empty_quantized));
}

}  // namespace

at::Tensor quantized_with_parts(const at::Tensor& tensor, const PartMap& map) {
  const at::Tensor mapped = map(bytes(tensor));
  const auto key = mapped.is_cpu() ? c10::DispatchKey::QuantizedCPU : c10::DispatchKey::QuantizedPrivateUse1;
  auto made = c10::make_intrusive<at::QTensorImpl>(c10::Storage(mapped.storage()), c10::DispatchKeySet(key),
                                                   tensor.dtype(),
                                                   with_parts(quantized_impl(tensor).quantizer(), map));
  made->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return at::Tensor(std::move(made));
}

void assign_quantized(const at::Tensor& to, const at::Tensor& from, const PartMap& map) {
  at::QTensorImpl& impl = quantized_impl(to);
  impl.set_quantizer_(with_parts(quantized_impl(from).quantizer(), map));
  impl.set_sizes_and_strides(from.sizes(), from.strides(), from.storage_offset());
}

}  // namespace isthmus
