#include "dispatch/alias.h"

#include <c10/core/CPUAllocator.h>

#include "core/thread_local.h"

namespace isthmus {
namespace {

constexpr int kMostSpare = 64;  // per thread; more are needed for long lists of tensors only

// Plain data, so that an access is one instruction.
struct Spares {
  Alias* first;
  int count;
  bool closed;  // the thread ends
};
__thread Spares spares ISTHMUS_THREAD_LOCAL_MODEL = {nullptr, 0, false};

struct Closer {
  ~Closer() {
    spares.closed = true;
    while (Alias* alias = spares.first) {
      spares.first = alias->next;
      delete alias;
    }
  }
};

Alias& new_alias() {
  static thread_local Closer closer;
  static_cast<void>(closer);
  return *new Alias;
}

c10::DispatchKeySet keys_like(const c10::TensorImpl& original) {
  return c10::DispatchKeySet(c10::DispatchKey::CPU) | lazy_bits(original);
}

}  // namespace

Alias& take_alias() {
  Alias* const alias = spares.first;
  if (C10_UNLIKELY(alias == nullptr)) return new_alias();
  spares.first = alias->next;
  --spares.count;
  return *alias;
}

void return_alias(Alias& alias) noexcept {
  if (C10_UNLIKELY(spares.count >= kMostSpare || spares.closed)) {
    delete &alias;
    return;
  }
  alias.next = spares.first;
  spares.first = &alias;
  ++spares.count;
}

void lay_over(Alias& alias, c10::DataPtr data, size_t nbytes) {
  c10::Allocator* const allocator = c10::GetCPUAllocator();  // another one once the router is installed
  alias.data = data.get();
  alias.nbytes = nbytes;
  if (C10_UNLIKELY(!alias.storage)) {
    alias.storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), nbytes,
                                                          std::move(data), allocator, true);
    return;
  }
  alias.storage->set_data_ptr_noswap(std::move(data));
  alias.storage->set_nbytes(nbytes);
  alias.storage->set_allocator(allocator);
}

void shape_like(Alias& alias, const c10::TensorImpl& original) {
  if (C10_UNLIKELY(!alias.tensor.defined() || alias.under != &alias ||
                   alias.tensor.key_set() != keys_like(original)))
    alias.tensor = at::Tensor(c10::make_intrusive<c10::TensorImpl>(
        c10::TensorImpl::VIEW, c10::Storage(alias.under->storage), keys_like(original), original.dtype()));
  c10::TensorImpl& impl = *alias.tensor.unsafeGetTensorImpl();
  if (impl.dtype() != original.dtype()) impl.set_storage_and_dtype(impl.storage(), original.dtype());
  if (impl.sizes() != original.sizes() || impl.strides() != original.strides() ||
      impl.storage_offset() != original.storage_offset())
    impl.set_sizes_and_strides(original.sizes(), original.strides(), original.storage_offset());
}

bool is_spare(const Alias& alias) noexcept {
  if (C10_UNLIKELY(!alias.tensor.defined() || !alias.storage)) return false;  // an exception was first
  const c10::TensorImpl& impl = *alias.tensor.unsafeGetTensorImpl();
  const c10::StorageImpl& storage = *alias.storage;
  return alias.tensor.use_count() == 1 && alias.tensor.weak_use_count() == 1 &&
         impl.unsafe_storage().unsafeGetStorageImpl() == &storage && alias.storage.use_count() == 2 &&
         alias.storage.weak_use_count() == 1 && storage.data_ptr().get_context() == nullptr &&
         impl.pyobj_slot()->load_pyobj() == nullptr && storage.pyobj_slot()->load_pyobj() == nullptr;
}

}  // namespace isthmus
