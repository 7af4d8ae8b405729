#include "dispatch/host_alias.h"

#include <ATen/ops/zeros.h>
#include <c10/core/TensorImpl.h>

#include "core/runtime.h"
#include "memory/memory.h"

namespace isthmus {
namespace {

// Its address also identifies an alias among CPU storages.
void release_original(void* original) { delete static_cast<c10::Storage*>(original); }

c10::DataPtr alias_data(const c10::Storage& original) {
  void* const data = memory::host_address(original.mutable_data());
  return c10::DataPtr(data, new c10::Storage(original), &release_original, c10::Device(c10::kCPU));
}

// The chip storage of which a CPU storage is an alias; null if it is not an alias.
const c10::Storage* original_of(const c10::StorageImpl& storage) {
  const c10::DataPtr& data = storage.data_ptr();
  return data.get_deleter() == &release_original ? static_cast<const c10::Storage*>(data.get_context())
                                                 : nullptr;
}

// Moves the bytes of a CPU storage in the chip's pool to a chip storage. The CPU storage becomes its alias.
// Returns a null storage if the bytes are not the chip's.
c10::Storage adopt(c10::StorageImpl& host) {
  auto chip = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), host.nbytes(),
                                                    std::move(host._mutable_data_ptr_no_checks()),
                                                    host.allocator(), /*resizable=*/true);
  if (!memory::adopt(*chip)) {
    host.set_data_ptr_noswap(std::move(chip->_mutable_data_ptr_no_checks()));
    return {};
  }
  host.set_data_ptr_noswap(alias_data(chip));
  return chip;
}

at::Tensor with_storage(const at::Tensor& like, c10::Storage storage, c10::DispatchKey key) {
  const c10::TensorImpl& impl = *like.unsafeGetTensorImpl();
  const c10::DispatchKeySet bits =
      impl.key_set() & c10::DispatchKeySet({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});
  auto made =
      c10::make_intrusive<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key) | bits, impl.dtype());
  made->set_sizes_and_strides(impl.sizes(), impl.strides(), impl.storage_offset());
  return at::Tensor(std::move(made));
}

void check_strided(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  TORCH_CHECK_NOT_IMPLEMENTED(
      impl.layout() == c10::kStrided && impl.has_storage() &&
          !impl.key_set().has(c10::DispatchKey::Quantized) &&
          !impl.key_set().has(c10::DispatchKey::NestedTensor),
      "compiled code on chip takes and returns dense tensors, not sparse, quantized or nested ones; "
      "leave the operators on them out of torch.compile.");
}

}  // namespace

c10::Storage HostAliases::storage_of(const c10::Storage& original, bool read) {
  c10::StorageImpl* const key = original.unsafeGetStorageImpl();
  if (!read) static_cast<void>(original.mutable_data());  // a lazy copy becomes one before it is written
  for (const auto& [impl, mapped] : storages_)
    if (impl == key) return mapped;
  void* const bytes = memory::host_address(const_cast<void*>(original.data()));
  c10::DataPtr data = keeps_ ? alias_data(original) : c10::DataPtr(bytes, c10::Device(c10::kCPU));
  // Not resizable: new bytes would be lost to the chip's tensors.
  c10::Storage mapped(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                                            original.nbytes(), std::move(data), nullptr,
                                                            /*resizable=*/false));
  storages_.emplace_back(key, mapped);
  return mapped;
}

at::Tensor HostAliases::alias(const at::Tensor& tensor, bool read) {
  if (!tensor.defined() || !tensor.is_privateuseone()) return tensor;
  if (C10_UNLIKELY(tensor._is_zerotensor())) return alias(at::zeros(tensor.sizes(), tensor.options()), read);
  check_strided(tensor);
  return with_storage(tensor, storage_of(tensor.storage(), read), c10::DispatchKey::CPU);
}

at::Tensor chip_tensor(const at::Tensor& host, c10::DeviceIndex device) {
  if (!host.defined() || !host.is_cpu()) return host;
  check_strided(host);
  c10::StorageImpl& storage = *host.storage().unsafeGetStorageImpl();
  if (const c10::Storage* original = original_of(storage))
    return with_storage(host, *original, c10::DispatchKey::PrivateUse1);
  if (c10::Storage chip = adopt(storage))
    return with_storage(host, std::move(chip), c10::DispatchKey::PrivateUse1);
  return host.to(c10::Device(kChip, device));
}

}  // namespace isthmus
