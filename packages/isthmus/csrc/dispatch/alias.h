// CPU tensors that a thread reuses from call to call: to create one takes two allocations, and more time than
// many kernels.
#pragma once

#include <ATen/core/Tensor.h>

namespace isthmus {

struct Alias {
  at::Tensor tensor;                             // with the key CPU only; undefined until first used
  c10::intrusive_ptr<c10::StorageImpl> storage;  // under the tensor, unless that shares another's

  // State of one call:
  c10::TensorImpl* original = nullptr;  // both are kept by the caller
  c10::StorageImpl* original_storage = nullptr;
  Alias* under = nullptr;  // alias whose storage is under the tensor: this one, or an earlier one
  void* data = nullptr;    // address that the storage was made with, to notice a resize
  size_t nbytes = 0;
  bool written = false;
  bool storage_written = false;
  Alias* next = nullptr;
};

// One of the thread's spare aliases, or a new one.
Alias& take_alias();

// Returns it to the thread that took it.
void return_alias(Alias& alias) noexcept;

// Makes the alias's storage one of nbytes bytes at data.
void lay_over(Alias& alias, c10::DataPtr data, size_t nbytes);

// Makes the alias's tensor one of the geometry, dtype and lazy bits of original, over the storage of
// alias.under.
void shape_like(Alias& alias, const c10::TensorImpl& original);

// Whether nothing but the alias has a reference to its tensor or its storage, and no call has changed what
// lay_over() and shape_like() do not set.
bool is_spare(const Alias& alias) noexcept;

// Another reference to the tensor.
inline at::Tensor own_reference(c10::TensorImpl& tensor) {
  return at::Tensor(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim_copy(&tensor));
}

// The bits of a tensor that views by conj() and neg() have.
inline c10::DispatchKeySet lazy_bits(const c10::TensorImpl& tensor) {
  return tensor.key_set() & c10::DispatchKeySet({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});
}

}  // namespace isthmus
