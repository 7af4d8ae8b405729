// Native route: resize_ and set_, which change what a tensor's storage is.
#include "dispatch/operators/resize.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/ResizeCommon.h>
#include <torch/library.h>

#include <algorithm>

#include "core/capture.h"
#include "core/profiler.h"
#include "core/stream.h"
#include "dispatch/captured.h"
#include "dispatch/statistics.h"
#include "memory/memory.h"

namespace isthmus {
namespace {

// Grows the storage if the tensor's geometry reaches beyond it; never shrinks, as on other devices.
void fit_storage(c10::TensorImpl& tensor) {
  const size_t needed = at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(),
                                                         tensor.dtype().itemsize(), tensor.storage_offset());
  if (tensor.numel() == 0) return;
  TORCH_CHECK(tensor.storage(), "a tensor without a storage cannot be resized.");
  c10::StorageImpl& storage = *tensor.unsafe_storage().unsafeGetStorageImpl();
  if (needed > storage.nbytes()) resize_storage(storage, needed);
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size,
                          std::optional<at::MemoryFormat> memory_format) {
  ISTHMUS_COUNT("aten::resize_", Route::kNative);
  c10::TensorImpl& impl = *self.unsafeGetTensorImpl();
  const auto old_bytes = static_cast<int64_t>(impl.unsafe_storage() ? impl.unsafe_storage().nbytes() : 0);
  if (self.sizes() != size) impl.set_sizes_contiguous(size);
  fit_storage(impl);
  if (memory_format.has_value()) {
    TORCH_CHECK(*memory_format != at::MemoryFormat::Preserve, "Unsupported memory format", *memory_format);
    impl.empty_tensor_restride(*memory_format);
  }
  if (C10_UNLIKELY(at::globalContext().deterministicAlgorithms() &&
                   at::globalContext().deterministicFillUninitializedMemory()))
    at::native::fill_resize_deterministic_(self, old_bytes);
  return self;
}

at::Tensor& set_storage_offset(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size,
                               at::IntArrayRef stride) {
  ISTHMUS_COUNT("aten::set_.source_Storage_storage_offset", Route::kNative);
  TORCH_CHECK(source.device() == self.device(), "Attempted to set the storage of a tensor on device \"",
              self.device(), "\" to a storage on different device \"", source.device(),
              "\".  This is no longer allowed; the devices must match.");
  TORCH_CHECK(offset >= 0, "Tensor: invalid storage offset ", offset);
  TORCH_CHECK(stride.empty() || size.size() == stride.size(), "mismatch in length of strides and shape");
  for (const int64_t step : stride)
    TORCH_CHECK(step >= 0, "set_: negative strides are not supported, got ", stride);
  c10::TensorImpl& impl = *self.unsafeGetTensorImpl();
  impl.set_storage_keep_dtype(std::move(source));
  if (stride.empty() && !size.empty()) {
    impl.set_storage_offset(offset);
    impl.set_sizes_contiguous(size);
  } else {
    impl.set_sizes_and_strides(size, stride, offset);
  }
  fit_storage(impl);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source) {
  const int64_t numel = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_storage_offset(self, std::move(source), 0, {numel}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.unsafeGetTensorImpl() == source.unsafeGetTensorImpl()) return self;
  return set_storage_offset(self, source.storage(), source.storage_offset(), source.sizes(),
                            source.strides());
}

at::Tensor& set_empty(at::Tensor& self) {
  const c10::Stream stream = current_stream(self.device().index());
  at::Storage storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0,
                                                            memory::allocate(0, stream),
                                                            &memory::device_allocator(), true));
  return set_storage_offset(self, std::move(storage), 0, {0}, {});
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("resize_", TORCH_FN(resize_));
  m.impl("set_", TORCH_FN(set_empty));
  m.impl("set_.source_Storage", TORCH_FN(set_storage));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage_offset));
  m.impl("set_.source_Tensor", TORCH_FN(set_tensor));
}

TORCH_LIBRARY_IMPL(aten, QuantizedPrivateUse1, m) {
  m.impl("set_.source_Storage", TORCH_FN(set_storage));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage_offset));
}

}  // namespace

c10::DataPtr copy_to_new_memory(const void* from, size_t kept, size_t bytes, c10::Stream stream) {
  c10::DataPtr memory = memory::allocate(bytes, stream);
  if (kept == 0) return memory;
  using profiler::Work;
  const Work work(profiler::Kind::kCopy, "Memcpy DtoD", stream, Work::By::kDriver, kept);
  const isthmus_stream handle = stream_handle(stream);
  if (!moves_once(stream, from, kept))
    capture_copy(stream, memory.get(), from, kept, ISTHMUS_DEVICE_TO_DEVICE);
  check(driver().copy_async(memory.get(), from, kept, ISTHMUS_DEVICE_TO_DEVICE, handle),
        "copy to new memory");
  mark_busy(stream);
  return memory;
}

void resize_storage(c10::StorageImpl& storage, size_t bytes) {
  TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable");
  const c10::Stream stream = current_stream(storage.device().index());
  const size_t kept = std::min(storage.nbytes(), bytes);
  c10::DataPtr memory = copy_to_new_memory(storage.data(), kept, bytes, stream);
  void* const to = memory.get();
  // The old block belongs to its stream, which must not reuse it before the copy is done.
  memory::device_allocator().recordStream(storage.data_ptr(), stream);
  c10::DataPtr old = std::move(storage._mutable_data_ptr_no_checks());
  storage.clear_materializer();  // a lazy clone has memory of its own from now on
  storage.set_data_ptr_noswap(std::move(memory));
  storage.set_nbytes(bytes);
  save_moved(stream, std::move(old), kept, to, bytes);
}

}  // namespace isthmus
