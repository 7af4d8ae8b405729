// Native route: allocation and views, which need no kernel.
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/conj.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "core/stream.h"
#include "core/stream_trace.h"
#include "dispatch/mapping.h"
#include "dispatch/statistics.h"
#include "dispatch/sync_debug.h"
#include "memory/memory.h"

namespace isthmus {
namespace {

c10::Device chip_device(std::optional<at::Device> device) {
  const c10::DeviceIndex index = device && device->index() >= 0 ? device->index() : current_device();
  check_device(index);
  return c10::Device(kChip, index);
}

at::Tensor make_tensor(size_t nbytes, at::ScalarType dtype, c10::Device device) {
  if (C10_UNLIKELY(dtype == at::kComplexHalf)) {
    TORCH_WARN_ONCE("ComplexHalf support is experimental and many operators don't support it yet.");
  }
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), nbytes, memory::allocate(nbytes, current_stream(device.index())),
      &memory::device_allocator(), true));
  return at::detail::make_tensor<c10::TensorImpl>(std::move(storage),
                                                  c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                                  c10::scalarTypeToTypeMeta(dtype));
}

void check_options(std::optional<at::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(!layout || *layout == at::kStrided, "layout ", *layout,
                              " is not supported on chip; strided is.");
  TORCH_CHECK(!pin_memory || !*pin_memory, "Only dense CPU tensors can be pinned, not tensors on chip.");
}

// Under torch.use_deterministic_algorithms, fresh memory is NaN or the largest integer.
void fill_if_deterministic(at::Tensor& tensor) {
  if (C10_UNLIKELY(at::globalContext().deterministicAlgorithms() &&
                   at::globalContext().deterministicFillUninitializedMemory()))
    at::native::fill_empty_deterministic_(tensor);
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                 std::optional<at::Device> device, std::optional<bool> pin_memory,
                 std::optional<at::MemoryFormat> memory_format) {
  ISTHMUS_COUNT("aten::empty.memory_format", Route::kNative);
  check_options(layout, pin_memory);
  at::detail::check_size_nonnegative(size);
  const at::ScalarType type = c10::dtype_or_default(dtype);
  const size_t nbytes = at::detail::computeStorageNbytesContiguous(size, c10::elementSize(type));
  at::Tensor tensor = make_tensor(nbytes, type, chip_device(device));
  // A fresh tensor has the geometry of shape {0}.
  if (size.size() != 1 || size[0] != 0) tensor.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  if (memory_format && *memory_format != at::MemoryFormat::Contiguous)
    tensor.unsafeGetTensorImpl()->empty_tensor_restride(*memory_format);
  fill_if_deterministic(tensor);
  return tensor;
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout, std::optional<at::Device> device,
                         std::optional<bool> pin_memory) {
  ISTHMUS_COUNT("aten::empty_strided", Route::kNative);
  check_options(layout, pin_memory);
  at::detail::check_size_nonnegative(size);
  const at::ScalarType type = c10::dtype_or_default(dtype);
  const size_t nbytes = at::detail::computeStorageNbytes(size, stride, c10::elementSize(type));
  at::Tensor tensor = make_tensor(nbytes, type, chip_device(device));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride);
  fill_if_deterministic(tensor);
  return tensor;
}

// A tensor of zeros that holds no bytes (autograd's and forward AD's).
at::Tensor efficient_zero_tensor(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                                 std::optional<at::Layout>, std::optional<at::Device> device,
                                 std::optional<bool>) {
  ISTHMUS_COUNT("aten::_efficientzerotensor", Route::kNative);
  at::native::ZeroTensorAllocator allocator(chip_device(device));
  const c10::DispatchKeySet keys =
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1) | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor);
  return at::detail::empty_generic(size, &allocator, keys, c10::dtype_or_default(dtype), std::nullopt);
}

at::Tensor view(const at::Tensor& self, at::IntArrayRef size) {
  ISTHMUS_COUNT("aten::view", Route::kNative);
  return at::native::view(self, size);
}

at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                      std::optional<int64_t> offset) {
  ISTHMUS_COUNT("aten::as_strided", Route::kNative);
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

at::Tensor reshape_alias(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride) {
  ISTHMUS_COUNT("aten::_reshape_alias", Route::kNative);
  return at::native::_reshape_alias(self, size, stride);
}

at::Tensor unfold(const at::Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  ISTHMUS_COUNT("aten::unfold", Route::kNative);
  return at::native::unfold(self, dimension, size, step);
}

at::Tensor view_as_real(const at::Tensor& self) {
  ISTHMUS_COUNT("aten::view_as_real", Route::kNative);
  return at::native::view_as_real(self);
}

at::Tensor view_as_complex(const at::Tensor& self) {
  ISTHMUS_COUNT("aten::view_as_complex", Route::kNative);
  return at::native::view_as_complex(self);
}

bool is_set_to(const at::Tensor& self, const at::Tensor& source) {
  ISTHMUS_COUNT("aten::is_set_to", Route::kNative);
  return at::native::is_set_to(self, source);
}

void record_stream(at::Tensor& self, at::Stream stream) {
  ISTHMUS_COUNT("aten::record_stream", Route::kNative);
  memory::device_allocator().recordStream(self.storage().data_ptr(), stream);
}

// The value of a tensor of one element.
at::Scalar local_scalar_dense(const at::Tensor& self) {
  ISTHMUS_COUNT("aten::_local_scalar_dense", Route::kNative);
  TORCH_CHECK(self.numel() > 0, "_local_scalar_dense: Empty tensor not supported");
  waits("aten::_local_scalar_dense (item)");
  const at::Tensor host = at::empty({}, self.options().device(at::kCPU));
  read_device(host.mutable_data_ptr(), self.const_data_ptr(), host.nbytes(), self.device().index());
  tell(StreamAction::kStreamDone, nullptr, current_stream(self.device().index()));
  return at::_local_scalar_dense(self.is_neg() ? host._neg_view() : self.is_conj() ? host.conj() : host);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("_efficientzerotensor", TORCH_FN(efficient_zero_tensor));
  m.impl("view", TORCH_FN(view));
  m.impl("as_strided", TORCH_FN(as_strided));
  m.impl("_reshape_alias", TORCH_FN(reshape_alias));
  m.impl("unfold", TORCH_FN(unfold));
  m.impl("view_as_real", TORCH_FN(view_as_real));
  m.impl("view_as_complex", TORCH_FN(view_as_complex));
  m.impl("is_set_to", TORCH_FN(is_set_to));
  m.impl("record_stream", TORCH_FN(record_stream));
}

}  // namespace
}  // namespace isthmus
