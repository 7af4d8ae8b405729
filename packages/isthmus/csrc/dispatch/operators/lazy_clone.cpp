// Native route: lazy clones, which share their memory until one of them is written.
#include <ATen/core/Tensor.h>
#include <ATen/ops/clone.h>
#include <c10/core/impl/COW.h>
#include <c10/core/impl/COWDeleter.h>
#include <c10/util/ParallelGuard.h>
#include <torch/library.h>

#include <utility>
#include <variant>

#include "core/capture.h"
#include "core/stream.h"
#include "dispatch/captured.h"
#include "dispatch/operators/resize.h"
#include "dispatch/statistics.h"
#include "memory/block.h"
#include "memory/device_memory.h"

namespace isthmus {
namespace {

using c10::impl::cow::cow_deleter;
using c10::impl::cow::COWDeleterContext;

// Gives the storage memory of its own, after the context's reference count was decremented.
void leave(c10::StorageImpl& storage, c10::DataPtr own) {
  storage._mutable_data_ptr_no_checks().release_context();
  storage.set_data_ptr_noswap(std::move(own));
}

// Whether other streams may still read memory that only one lazy clone is left of.
bool is_recorded(const COWDeleterContext::LastReference& owner) {
  return owner != nullptr && owner.get_deleter() == &memory::release_block &&
         static_cast<memory::Block*>(owner.get())->recorded.load(std::memory_order_relaxed);
}

void take_over(c10::StorageImpl& storage, COWDeleterContext::LastReference owner) {
  const bool recorded = is_recorded(owner);
  const c10::DeleterFnPtr deleter = owner.get_deleter();
  leave(storage, {storage.data_ptr().get(), owner.release(), deleter, storage.device()});
  if (recorded) resize_storage(storage, storage.nbytes());  // to other memory
}

// Called before the storage is written. PyTorch's materialize_cow() requires that the context of a DataPtr is
// its address, and allocates on the current device.
void materialize(c10::StorageImpl* storage) {
  TORCH_CHECK(!c10::ParallelGuard::is_enabled(),
              "Materializing a storage in the loop function of at::parallel_for is forbidden");
  auto& context = *storage->data_ptr().cast_context<COWDeleterContext>(&cow_deleter);
  const c10::Stream stream = current_stream(storage->device().index());
  auto owner = context.decrement_refcount();  // one of several: keeps the memory unchanged
  if (auto* const last = std::get_if<COWDeleterContext::LastReference>(&owner))
    return take_over(*storage, std::move(*last));
  const size_t bytes = storage->nbytes();
  bool from_before_capture = false;
  c10::DataPtr copy;
  try {
    from_before_capture = is_from_before_capture(stream, storage->data());
    copy = copy_to_new_memory(storage->data(), bytes, bytes, stream);
    synchronize_stream(stream);  // the others may write the memory from then on
  } catch (...) {
    context.increment_refcount();
    throw;
  }
  leave(*storage, std::move(copy));
  if (from_before_capture) save_storage(*capture_of(stream), *storage);
}

// Memory that another library or process uses stays the tensor's, and a graph copies at each replay.
bool can_share(const c10::StorageImpl& storage) {
  return storage.resizable() && storage.data_ptr().get_deleter() == &memory::release_block &&
         capture_of(current_stream(storage.device().index())) == nullptr;
}

at::Tensor lazy_clone(const at::Tensor& self) {
  ISTHMUS_COUNT("aten::_lazy_clone", Route::kNative);
  c10::StorageImpl& storage = *self.storage().unsafeGetStorageImpl();
  if (!c10::impl::cow::is_cow_data_ptr(storage.data_ptr())) {
    if (!can_share(storage)) return self.clone();
    c10::DataPtr& data = storage._mutable_data_ptr_no_checks();
    void* const pointer = data.get();
    const c10::Device device = data.device();
    auto* const context = new COWDeleterContext(data.move_context());
    storage.set_data_ptr_noswap({pointer, context, &cow_deleter, device});
    storage.set_materializer(&materialize);
  }
  const c10::DataPtr& data = storage.data_ptr();
  auto* const context = data.cast_context<COWDeleterContext>(&cow_deleter);
  context->increment_refcount();
  auto shared = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), storage.nbytes(),
      c10::DataPtr(data.get(), context, &cow_deleter, data.device()), storage.allocator(), true);
  shared->set_materializer(&materialize);
  auto clone =
      c10::make_intrusive<c10::TensorImpl>(c10::Storage(std::move(shared)), self.key_set(), self.dtype());
  clone->set_sizes_and_strides(self.sizes(), self.strides(), self.storage_offset());
  return at::Tensor(std::move(clone));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_lazy_clone", TORCH_FN(lazy_clone)); }

}  // namespace
}  // namespace isthmus
