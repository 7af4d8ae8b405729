#include "collectives/gloo/host_views.h"

#include <ATen/Dispatch.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/DimVector.h>

#include <cstring>

#include "collectives/elements.h"
#include "core/dropping.h"
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

// A contiguous CPU tensor over existing bytes, which keep holds alive.
template <typename Keep>
at::Tensor view_of(void* data, at::IntArrayRef sizes, at::ScalarType dtype, Keep keep) {
  return at::from_blob(
      data, sizes, [keep = std::move(keep)](void*) mutable { drop(std::move(keep)); },
      at::TensorOptions().dtype(dtype).device(at::kCPU));
}

at::Tensor host_alias_of(const at::Tensor& tensor) {
  return view_of(memory::host_address(tensor.mutable_data_ptr()), tensor.sizes(), tensor.scalar_type(),
                 tensor.storage());
}

// Not by an operator: this is a thread of gloo, which should not start a pool of OpenMP threads.
void divide_in_thread(const at::Tensor& sums, int64_t ranks) {
  AT_DISPATCH_INTEGRAL_TYPES(sums.scalar_type(), "divide_in_thread", [&] {
    auto* const elements = sums.mutable_data_ptr<scalar_t>();
    for (int64_t i = 0; i < sums.numel(); ++i) elements[i] = static_cast<scalar_t>(elements[i] / ranks);
  });
}

// A view of the tensor's bytes, with the size of an element as the last dimension; gloo splits the first.
at::Tensor as_bytes(const at::Tensor& host) {
  c10::DimVector sizes(host.sizes().begin(), host.sizes().end());
  sizes.push_back(static_cast<int64_t>(host.element_size()));
  return view_of(host.mutable_data_ptr(), sizes, at::kByte, host);
}

}  // namespace

void HostViews::check(const at::Tensor& tensor) {
  if (!first_.defined()) {
    first_ = detached(tensor);
    if (tensor.is_privateuseone()) row_.begin(collective_, tensor.device(), tensor.scalar_type());
  }
  TORCH_CHECK(tensor.device() == first_.device(), collective_, " takes tensors of one device, not ",
              first_.device(), " and ", tensor.device(), ".");
  TORCH_CHECK(tensor.is_privateuseone() || tensor.is_cpu(), collective_,
              ": the chip backend takes chip and CPU tensors, not ", tensor.device(), "; use .to(\"chip\").");
  if (tensor.is_cpu()) return;
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == at::kStrided, collective_,
                              " does not take a tensor of layout ", tensor.layout(),
                              " on chip; use .to_dense().");
  const at::ScalarType dtype = tensor.scalar_type(), first = first_.scalar_type();
  TORCH_CHECK_TYPE(elements_ == Elements::kMoved || gloo_has(dtype), collective_, " does not reduce ",
                   torch_name(dtype),
                   " on chip; convert the tensor to float32, float64, float16, bfloat16, int8, uint8, int32, "
                   "int64 or bool.");
  TORCH_CHECK_TYPE(dtype == first || (gloo_has(dtype) && gloo_has(first)), collective_,
                   " takes tensors of one dtype, not ", torch_name(first), " and ", torch_name(dtype), ".");
}

at::Tensor HostViews::copy(const at::Tensor& tensor, Access access) {
  at::Tensor host = at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
  if (access != Access::kWrite) host.copy_(tensor);
  if (access != Access::kRead) copies_.push_back({detached(tensor), host});
  return host;
}

at::Tensor HostViews::map(const at::Tensor& tensor, Access access) {
  check(tensor);
  if (access != Access::kRead) results_.push_back(detached(tensor));
  if (tensor.is_cpu()) return tensor;
  drain(current_stream(tensor.device().index()));
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor host = can_alias(tensor) ? host_alias_of(tensor) : copy(tensor, access);
  row_.add(access == Access::kWrite ? 0 : host.nbytes(), access == Access::kRead ? 0 : host.nbytes());
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

at::Tensor HostViews::concatenate(const std::vector<at::Tensor>& tensors) {
  const std::vector<at::Tensor> hosts = map(tensors, Access::kRead);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  int64_t total = 0;
  for (const at::Tensor& host : hosts) total += host.numel();
  at::Tensor result = at::empty({total}, at::TensorOptions().dtype(first_.dtype()).device(at::kCPU));
  int64_t start = 0;
  for (const at::Tensor& host : hosts) {
    result.narrow(0, start, host.numel()).copy_(host.view({-1}));
    start += host.numel();
  }
  return result;
}

void HostViews::deliver(const at::Tensor& tensor, const at::Tensor& host) {
  check(tensor);
  TORCH_CHECK_TYPE(tensor.scalar_type() == host.scalar_type(), collective_,
                   " takes tensors of one dtype, not ", torch_name(host.scalar_type()), " and ",
                   torch_name(tensor.scalar_type()), ".");
  drain(current_stream(tensor.device().index()));
  row_.add(0, host.nbytes());
  results_.push_back(detached(tensor));
  copies_.push_back({results_.back(), host.view(tensor.sizes())});
}

void HostViews::divide(const std::vector<at::Tensor>& hosts, int ranks) {
  sums_ = hosts;
  ranks_ = ranks;
}

void HostViews::write_back() {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (const at::Tensor& sums : sums_) divide_in_thread(sums, ranks_);
  sums_.clear();
  for (const Copy& copy : copies_) {
    if (can_alias(copy.original) && copy.host.is_contiguous()) {
      // Not copy_(): this is a thread of gloo, which should not start a pool of OpenMP threads.
      std::memcpy(memory::host_address(copy.original.mutable_data_ptr()), copy.host.const_data_ptr(),
                  copy.host.nbytes());
    } else {
      copy.original.copy_(copy.host);
    }
  }
  copies_.clear();
}

}  // namespace isthmus
