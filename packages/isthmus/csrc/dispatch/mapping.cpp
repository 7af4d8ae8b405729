#include "dispatch/mapping.h"

#include <ATen/ops/zeros.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <cstring>

#include "core/profiler.h"
#include "core/stream.h"
#include "dispatch/captured.h"
#include "dispatch/statistics.h"
#include "memory/memory.h"

namespace isthmus {
namespace {

c10::DataPtr borrow(void* pointer) { return c10::DataPtr(pointer, c10::Device(c10::kCPU)); }

void release_owner(void* owner) { delete static_cast<c10::Storage*>(owner); }

// A CPU tensor outlived the call over the chip's bytes: let it keep them alive.
void own(c10::StorageImpl& mapped, c10::StorageImpl& original) {
  auto* owner = new c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(&original));
  void* data = mapped.data_ptr().get();
  mapped.set_data_ptr_noswap(c10::DataPtr(data, owner, &release_owner, c10::Device(c10::kCPU)));
}

bool same_geometry(const c10::TensorImpl& a, const c10::TensorImpl& b) {
  return a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() && a.strides() == b.strides() &&
         lazy_bits(a) == lazy_bits(b);
}

// Whether the elements are those of the storage at sizes and strides.
bool is_plain(const c10::TensorImpl& tensor) {
  const c10::DispatchKeySet keys = tensor.key_set();
  return tensor.layout() == c10::kStrided && tensor.has_storage() && !keys.has(c10::DispatchKey::Quantized) &&
         !keys.has(c10::DispatchKey::NestedTensor);
}

}  // namespace

namespace {

// Copies on the stream: a stream names its device, so that none must be made current.
void copy_and_wait(void* to, const void* from, size_t bytes, isthmus_copy_kind kind, c10::DeviceIndex device,
                   const char* what) {
  if (bytes == 0) return;
  const c10::Stream stream = current_stream(device);
  {
    using profiler::Work;
    const char* const name = kind == ISTHMUS_HOST_TO_DEVICE ? "Memcpy HtoD" : "Memcpy DtoH";
    const Work work(profiler::Kind::kCopy, name, stream, Work::By::kDriver, bytes);
    const isthmus_status status = driver().copy_async(to, from, bytes, kind, stream_handle(stream));
    check_waited(status, stream, what);  // pageable memory
    mark_busy(stream);
  }
  synchronize_stream(stream);
}

}  // namespace

void read_device(void* to, const void* from, size_t bytes, c10::DeviceIndex device) {
  copy_and_wait(to, from, bytes, ISTHMUS_DEVICE_TO_HOST, device, "copy to host");
}

void write_device(void* to, const void* from, size_t bytes, c10::DeviceIndex device) {
  copy_and_wait(to, from, bytes, ISTHMUS_HOST_TO_DEVICE, device, "copy to device");
}

Mapping::~Mapping() {
  layouts_.clear();
  if (C10_UNLIKELY(shares_storage_))
    for (Alias* alias = first_; alias != nullptr; alias = alias->next)
      if (alias->under != alias) alias->tensor.reset();
  for (Alias* alias = first_; alias != nullptr;) {
    Alias* const next = alias->next;
    if (alias->under == alias) release(*alias);
    return_alias(*alias);
    alias = next;
  }
}

// A storage still in use has escaped the call, unless it is lent.
void Mapping::release(Alias& alias) noexcept {
  if (C10_LIKELY(is_spare(alias))) return;
  alias.tensor.reset();
  if (!alias.storage) return;
  const bool borrows = alias.storage->data_ptr().get_context() == nullptr;
  if (!lent_ && borrows && alias.storage.use_count() > 1) own(*alias.storage, *alias.original_storage);
  alias.storage.reset();
}

void refuse_device(const std::string& operator_name, c10::DeviceIndex index, c10::Device other) {
  const bool indexes = operator_name == "aten::index.Tensor" || operator_name == "aten::index_put_" ||
                       operator_name == "aten::_index_put_impl_";
  const std::string hint =
      indexes ? c10::str("; indices should be either on cpu or on the same device as the indexed tensor (",
                         index < 0 ? other : c10::Device(kChip, index), ")")
              : "";
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, chip:",
              static_cast<int>(index < 0 ? current_device() : index), " and ", other, "! (when calling ",
              operator_name, hint, ")");
}

void Mapping::set_device(c10::Device device) {
  const c10::DeviceIndex index = device.index() < 0 ? current_device() : device.index();
  if (device_ >= 0 && device_ != index) refuse_device(operator_name_, device_, device);
  device_ = index;
}

// Address at which the CPU finds the bytes of the chip's storage: in place, or in a copy.
c10::DataPtr Mapping::host_bytes(const c10::StorageImpl& original) {
  if (C10_LIKELY(kind_ == Kind::kAlias)) return borrow(memory::host_address(original.data()));
  const size_t nbytes = original.nbytes();
  c10::DataPtr copy = c10::GetCPUAllocator()->allocate(nbytes);
  read_device(copy.get(), original.data(), nbytes, original.device().index());
  add_fallback_bytes(static_cast<int64_t>(nbytes));
  return copy;
}

void Mapping::map_storage(Alias& alias, bool written) {
  if (C10_UNLIKELY(alias.under != &alias)) {
    shares_storage_ = true;
    if (written) write_storage(*alias.under);
    return;
  }
  alias.storage_written = written;
  if (written) alias.original_storage->mutable_data();  // a lazy copy becomes one before it is written
  lay_over(alias, host_bytes(*alias.original_storage), alias.original_storage->nbytes());
}

// One that was mapped to be read is written too.
void Mapping::write_storage(Alias& alias) {
  alias.storage_written = true;
  alias.original_storage->mutable_data();
  if (kind_ == Kind::kCopy) return;
  void* const data = memory::host_address(alias.original_storage->data());
  if (data == alias.data) return;
  alias.data = data;
  alias.storage->set_data_ptr_noswap(borrow(data));
}

const at::Tensor& Mapping::argument(const at::Tensor& tensor, bool written, bool cpu_allowed) {
  using c10::DispatchKey;
  constexpr c10::DispatchKeySet ignored({DispatchKey::AutogradPrivateUse1, DispatchKey::ADInplaceOrView,
                                         DispatchKey::AutocastPrivateUse1, DispatchKey::Conjugate,
                                         DispatchKey::Negative});
  c10::TensorImpl& original = *tensor.unsafeGetTensorImpl();
  constexpr c10::DispatchKeySet usual = c10::DispatchKeySet(DispatchKey::PrivateUse1) | ignored;
  if (C10_UNLIKELY((original.key_set() | ignored) != usual || !original.has_storage()))
    return unusual_argument(tensor, written, cpu_allowed);
  return chip_argument(original, written);
}

const at::Tensor& Mapping::unusual_argument(const at::Tensor& tensor, bool written, bool cpu_allowed) {
  if (!tensor.defined()) return tensor;
  c10::TensorImpl& original = *tensor.unsafeGetTensorImpl();
  if (!original.is_privateuseone()) {
    if (original.is_cpu() && ((original.dim() == 0 && !written) || cpu_allowed)) return tensor;
    refuse_device(operator_name_, device_, original.device());
  }
  if (original._is_zerotensor())  // has no bytes: stands for zeros
    return argument(keep(at::zeros(tensor.sizes(), tensor.options())), written, cpu_allowed);
  if (!is_plain(original)) return layout_argument(tensor, written);
  return chip_argument(original, written);
}

const at::Tensor& Mapping::chip_argument(c10::TensorImpl& original, bool written) {
  for (Alias* alias = first_; alias != nullptr; alias = alias->next)
    if (alias->original == &original) {
      if (written) {
        alias->written = true;
        write_storage(*alias->under);
      }
      return alias->tensor;
    }
  const c10::Device device = original.device();
  if (device_ < 0) {
    device_ = device.index();
  } else if (C10_UNLIKELY(device_ != device.index())) {
    refuse_device(operator_name_, device_, device);
  }
  Alias& alias = append(original);
  alias.written = written;
  map_storage(alias, written);
  shape_like(alias, original);
  return alias.tensor;
}

// The next statements may throw; the alias is released with the others.
Alias& Mapping::append(c10::TensorImpl& original) {
  Alias& alias = take_alias();
  alias.original = &original;
  alias.original_storage = original.unsafe_storage().unsafeGetStorageImpl();
  alias.under = &alias;
  alias.next = nullptr;
  for (Alias* other = first_; other != nullptr; other = other->next)
    if (other->original_storage == alias.original_storage) {
      alias.under = other->under;
      break;
    }
  *end_ = &alias;
  end_ = &alias.next;
  return alias;
}

bool Mapping::maps(const at::Tensor& tensor) const {
  for (const Alias* alias = first_; alias != nullptr; alias = alias->next)
    if (alias->tensor.is_same(tensor)) return true;
  return false;
}

// Makes a CPU storage the chip's, in place if its bytes are on the chip, else by copying them.
void Mapping::move_to_chip(c10::StorageImpl& storage) {
  if (kind_ == Kind::kAlias && memory::adopt(storage)) return;
  const size_t nbytes = storage.nbytes();
  c10::DataPtr pointer = memory::allocate(nbytes, current_stream(device()));
  if (nbytes > 0) write_device(pointer.get(), storage.data(), nbytes, device());
  if (kind_ == Kind::kCopy)
    add_fallback_bytes(static_cast<int64_t>(nbytes));
  else
    add_adopted_copy_bytes(static_cast<int64_t>(nbytes));
  storage.set_data_ptr_noswap(std::move(pointer));
  storage.set_allocator(&memory::device_allocator());
}

void Mapping::finish_storage(Alias& alias) {
  c10::StorageImpl& mapped = *alias.storage;
  c10::StorageImpl& original = *alias.original_storage;
  const bool resized = mapped.data() != alias.data || mapped.nbytes() != alias.nbytes;
  if (C10_LIKELY(!resized)) {
    if (kind_ == Kind::kCopy) {
      write_device(original.mutable_data(), alias.data, alias.nbytes, original.device().index());
      add_fallback_bytes(static_cast<int64_t>(alias.nbytes));
    }
    return;
  }
  move_to_chip(mapped);
  void* data = memory::host_address(mapped.data());
  c10::DataPtr old = std::move(original._mutable_data_ptr_no_checks());
  original.set_data_ptr_noswap(std::move(mapped._mutable_data_ptr_no_checks()));
  if (C10_UNLIKELY(capturing()))
    save_moved(current_stream(device()), std::move(old), std::min(alias.nbytes, mapped.nbytes()),
               original.mutable_data(), mapped.nbytes());
  original.set_nbytes(mapped.nbytes());
  mapped.set_data_ptr_noswap(borrow(data));
}

void Mapping::finish_tensor(Alias& alias) {
  c10::TensorImpl& original = *alias.original;
  const c10::TensorImpl& mapped = *alias.tensor.unsafeGetTensorImpl();
  if (C10_LIKELY(same_geometry(original, mapped) && original.dtype() == mapped.dtype())) return;
  original.set_storage_and_dtype(original.storage(), mapped.dtype());
  original.set_sizes_and_strides(mapped.sizes(), mapped.strides(), mapped.storage_offset());
  original._set_conj(mapped.is_conj());
  original._set_neg(mapped.is_neg());
}

void Mapping::finish_arguments() {
  for (Alias* alias = first_; alias != nullptr; alias = alias->next)
    if (alias->under == alias && alias->storage_written) finish_storage(*alias);
  for (Alias* alias = first_; alias != nullptr; alias = alias->next)
    if (alias->written) finish_tensor(*alias);
  for (const LayoutPair& pair : layouts_)
    if (pair.written) finish_layout(pair);
}

namespace {

// A tensor of the chip's storage with the geometry of a CPU tensor, and otherwise like another of the chip.
at::Tensor view_of(c10::StorageImpl& storage, const c10::TensorImpl& shape, const c10::TensorImpl& like) {
  auto view = c10::make_intrusive<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(&storage)),
      (like.key_set() - lazy_bits(like)) | lazy_bits(shape), shape.dtype());
  view->set_sizes_and_strides(shape.sizes(), shape.strides(), shape.storage_offset());
  return at::Tensor(std::move(view));
}

}  // namespace

at::Tensor Mapping::result(at::Tensor tensor) {
  if (!tensor.defined()) return tensor;
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  for (Alias* alias = first_; alias != nullptr; alias = alias->next)
    if (alias->tensor.unsafeGetTensorImpl() == impl) return own_reference(*alias->original);
  if (C10_UNLIKELY(!impl->is_cpu())) return tensor;  // made on the chip by a nested call
  if (C10_UNLIKELY(!is_plain(*impl))) return layout_result(tensor);
  c10::StorageImpl& storage = *impl->unsafe_storage().unsafeGetStorageImpl();
  for (Alias* alias = first_; alias != nullptr; alias = alias->next)
    if (C10_UNLIKELY(alias->under == alias && alias->storage.get() == &storage))
      return view_of(*alias->original_storage, *impl, *first_->original);
  if (storage.device_type() != kChip) move_to_chip(storage);
  impl->set_storage_keep_dtype(impl->storage());
  impl->_change_backend_component_keys(storage.device());
  return tensor;
}

}  // namespace isthmus
