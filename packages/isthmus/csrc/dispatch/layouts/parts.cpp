// Sparse, nested and quantized tensors in a mapping: their parts are dense tensors, and are mapped as such.
#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>

#include "core/capture.h"
#include "core/stream.h"
#include "dispatch/layouts/quantized.h"
#include "dispatch/mapping.h"

namespace isthmus {
namespace {

using at::SparseCsrTensorImpl;
using at::SparseTensorImpl;
using at::native::NestedTensorImpl;

template <class Impl>
Impl& impl_of(const at::Tensor& tensor) {
  return *static_cast<Impl*>(tensor.unsafeGetTensorImpl());
}

void assign_coo(SparseTensorImpl& to, const SparseTensorImpl& from, const at::Tensor& indices,
                const at::Tensor& values) {
  to.raw_resize_(from.sparse_dim(), from.dense_dim(), from.sizes());
  to.set_indices_and_values_unsafe(indices, values);
  to.set_coalesced(from.coalesced());
}

at::Tensor coo(const SparseTensorImpl& from, const PartMap& map) {
  const at::Tensor indices = map(from.indices()), values = map(from.values());
  const c10::DeviceGuard guard(values.device());
  auto made = c10::make_intrusive<SparseTensorImpl>(
      c10::DispatchKeySet(values.is_cpu() ? c10::DispatchKey::SparseCPU
                                          : c10::DispatchKey::SparsePrivateUse1),
      from.dtype());
  assign_coo(*made, from, indices, values);
  return at::Tensor(std::move(made));
}

at::Tensor map_compressed(const SparseCsrTensorImpl& from, const PartMap& map) {
  const at::Tensor outer = map(from.compressed_indices()), inner = map(from.plain_indices());
  const at::Tensor values = map(from.values());
  const auto key = values.is_cpu() ? c10::DispatchKey::SparseCsrCPU : c10::DispatchKey::SparseCsrPrivateUse1;
  auto made = c10::make_intrusive<SparseCsrTensorImpl>(c10::DispatchKeySet(key), values.device(),
                                                       from.layout(), from.dtype());
  made->set_member_tensors(outer, inner, values, from.sizes());
  return at::Tensor(std::move(made));
}

// Sizes, strides and offsets are CPU tensors on every device.
at::Tensor map_nested(const NestedTensorImpl& from, const PartMap& map) {
  return at::Tensor(c10::make_intrusive<NestedTensorImpl>(map(from.get_unsafe_storage_as_tensor()),
                                                          from.get_nested_sizes(), from.get_nested_strides(),
                                                          from.get_storage_offsets()));
}

// The tensor with other parts, on their device.
at::Tensor with_parts(const at::Tensor& tensor, const std::string& operator_name, const PartMap& map) {
  if (tensor.is_nested()) return map_nested(impl_of<NestedTensorImpl>(tensor), map);
  if (tensor.is_sparse()) return coo(impl_of<SparseTensorImpl>(tensor), map);
  if (tensor.unsafeGetTensorImpl()->is_sparse_compressed())
    return map_compressed(impl_of<SparseCsrTensorImpl>(tensor), map);
  if (tensor.is_quantized()) return quantized_with_parts(tensor, map);
  TORCH_CHECK_NOT_IMPLEMENTED(false, operator_name,
                              ": mkldnn tensors are not supported on chip; keep them on CPU.");
}

}  // namespace

const at::Tensor& Mapping::layout_argument(at::Tensor tensor, bool written) {
  for (LayoutPair& pair : layouts_)
    if (pair.original.is_same(tensor)) {
      if (written && !pair.written) {
        pair.written = true;
        with_parts(tensor, operator_name_,
                   [this](const at::Tensor& part) { return argument(keep(part), true); });
      }
      return pair.mapped;
    }
  const at::Tensor mapped = with_parts(tensor, operator_name_,
                                       [&](const at::Tensor& part) { return argument(keep(part), written); });
  refuse_capture();
  // A kernel of _sparse_mm_reduce_impl keeps what the gradient needs only if an argument requires it.
  if (c10::GradMode::is_enabled() && mapped.unsafeGetTensorImpl()->is_sparse_compressed() &&
      c10::isFloatingType(mapped.scalar_type()))
    mapped.set_requires_grad(true);
  return layouts_.emplace_back(LayoutPair{tensor, mapped, written}).mapped;
}

at::Tensor Mapping::layout_result(const at::Tensor& tensor) {
  for (const LayoutPair& pair : layouts_)
    if (pair.mapped.is_same(tensor)) return pair.original;
  refuse_capture();
  return with_parts(tensor, operator_name_, [this](const at::Tensor& part) { return result(part); });
}

void Mapping::refuse_capture() const {
  require_not_captured(current_stream(device()), operator_name_.c_str());
}

// The call may have replaced the parts. A nested tensor keeps its own.
void Mapping::finish_layout(const LayoutPair& pair) {
  if (pair.mapped.is_sparse()) {
    const auto& mapped = impl_of<SparseTensorImpl>(pair.mapped);
    assign_coo(impl_of<SparseTensorImpl>(pair.original), mapped, result(mapped.indices()),
               result(mapped.values()));
  } else if (pair.mapped.is_quantized()) {
    assign_quantized(pair.original, pair.mapped, [this](const at::Tensor& part) { return result(part); });
  } else if (!pair.mapped.is_nested()) {
    const auto& mapped = impl_of<SparseCsrTensorImpl>(pair.mapped);
    auto& original = impl_of<SparseCsrTensorImpl>(pair.original);
    original.set_layout(mapped.layout());
    original.set_member_tensors(result(mapped.compressed_indices()), result(mapped.plain_indices()),
                                result(mapped.values()), mapped.sizes());
  }
}

}  // namespace isthmus
