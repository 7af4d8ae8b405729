#include "collectives/host_views.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/DimVector.h>

#include "core/runtime.h"
#include "core/stream.h"
#include "memory/memory.h"

namespace isthmus {
namespace {

bool gloo_has(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
    case at::kDouble:
    case at::kHalf:
    case at::kBFloat16:
    case at::kChar:
    case at::kByte:
    case at::kInt:
    case at::kLong:
    case at::kBool:
      return true;
    default:
      return false;
  }
}

bool can_alias(const at::Tensor& tensor) {
  return ISTHMUS_HAS(driver(), host_window) && tensor.is_contiguous() && !tensor.is_conj() &&
         !tensor.is_neg() && !tensor._is_zerotensor();
}

// A contiguous CPU tensor over bytes that keep lives for.
template <typename Keep>
at::Tensor over(void* data, at::IntArrayRef sizes, at::ScalarType dtype, Keep keep) {
  return at::from_blob(
      data, sizes, [keep = std::move(keep)](void*) {}, at::TensorOptions().dtype(dtype).device(at::kCPU));
}

// The same bytes with the size of an element as the last dimension: the first, which is split, stays.
at::Tensor as_bytes(const at::Tensor& host) {
  c10::DimVector sizes(host.sizes().begin(), host.sizes().end());
  sizes.push_back(static_cast<int64_t>(host.element_size()));
  return over(host.mutable_data_ptr(), sizes, at::kByte, host);
}

}  // namespace

void HostViews::check_chip_tensor(const at::Tensor& tensor) {
  const at::ScalarType dtype = tensor.scalar_type();
  if (!dtype_) dtype_ = dtype;
  TORCH_CHECK(tensor.is_privateuseone(), collective_, ": the chip backend takes chip and CPU tensors, not ",
              tensor.device(), "; move the tensor with .to(\"chip\").");
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == at::kStrided, collective_,
                              " does not take a tensor of layout ", tensor.layout(),
                              " on chip; use .to_dense().");
  TORCH_CHECK_TYPE(
      elements_ == Elements::kMoved || gloo_has(dtype), collective_, " does not reduce ", dtype,
      " on chip; convert the tensor to float32, float64, float16, bfloat16, int8, uint8, int32, int64 "
      "or bool.");
  TORCH_CHECK_TYPE(dtype == *dtype_ || (gloo_has(dtype) && gloo_has(*dtype_)), collective_,
                   " takes tensors of one dtype, not ", *dtype_, " and ", dtype, ".");
}

at::Tensor HostViews::copy(const at::Tensor& tensor, Access access) {
  at::Tensor host = at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
  if (access != Access::kWrite) host.copy_(tensor);
  if (access != Access::kRead) copies_.push_back({tensor, host});
  return host;
}

at::Tensor HostViews::map(const at::Tensor& tensor, Access access) {
  if (access != Access::kRead) results_.push_back(tensor);
  if (tensor.is_cpu()) return tensor;
  check_chip_tensor(tensor);
  any_ = true;
  drain(current_stream(tensor.device().index()));
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor host = can_alias(tensor) ? over(memory::host_address(tensor.mutable_data_ptr()),
                                                   tensor.sizes(), tensor.scalar_type(), tensor.storage())
                                            : copy(tensor, access);
  return gloo_has(tensor.scalar_type()) ? host : as_bytes(host);
}

std::vector<at::Tensor> HostViews::map(const std::vector<at::Tensor>& tensors, Access access) {
  std::vector<at::Tensor> hosts;
  hosts.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) hosts.push_back(map(tensor, access));
  return hosts;
}

std::vector<std::vector<at::Tensor>> HostViews::map(const std::vector<std::vector<at::Tensor>>& lists,
                                                    Access access) {
  std::vector<std::vector<at::Tensor>> hosts;
  hosts.reserve(lists.size());
  for (const auto& list : lists) hosts.push_back(map(list, access));
  return hosts;
}

void HostViews::write_back() {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (Copy& copy : copies_) copy.original.copy_(copy.host);
  copies_.clear();
}

}  // namespace isthmus
