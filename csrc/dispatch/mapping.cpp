#include "dispatch/mapping.h"

#include <ATen/ops/zeros.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <cstring>

#include "core/profiler.h"
#include "core/stream.h"
#include "dispatch/statistics.h"
#include "memory/memory.h"

namespace isthmus {
namespace {

c10::DataPtr borrowed(void* pointer) { return c10::DataPtr(pointer, c10::Device(c10::kCPU)); }

void release_owner(void* owner) { delete static_cast<c10::Storage*>(owner); }

// A CPU tensor outlived the call over the chip's bytes: let it keep them alive.
void own(c10::StorageImpl& mapped, c10::StorageImpl& original) {
  auto* owner = new c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(&original));
  void* data = mapped.data_ptr().get();
  mapped.set_data_ptr_noswap(c10::DataPtr(data, owner, &release_owner, c10::Device(c10::kCPU)));
}

c10::DispatchKeySet bits_of(const c10::TensorImpl& tensor) {
  return tensor.key_set() & c10::DispatchKeySet({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});
}

bool same_geometry(const c10::TensorImpl& a, const c10::TensorImpl& b) {
  return a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() && a.strides() == b.strides() &&
         bits_of(a) == bits_of(b);
}

// Whether the elements are those of the storage at sizes and strides.
bool is_plain(const c10::TensorImpl& tensor) {
  const c10::DispatchKeySet keys = tensor.key_set();
  return tensor.layout() == c10::kStrided && tensor.has_storage() && !keys.has(c10::DispatchKey::Quantized) &&
         !keys.has(c10::DispatchKey::NestedTensor);
}

}  // namespace

namespace {

// On the stream: a stream names its device, so that none must be made current.
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
  // The mapping's tensors are released first; a storage still in use then has escaped the call.
  for (TensorPair& pair : pairs_) pair.mapped.reset();
  if (kind_ == Kind::kAlias && !lent_)
    for (StoragePair& pair : storages_)
      if (C10_UNLIKELY(pair.mapped.use_count() > 1)) own(*pair.mapped, *pair.original);
}

void Mapping::refuse_device(c10::Device device) const {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, chip:",
              static_cast<int>(this->device()), " and ", device, "! (when calling ", operator_name_, ")");
}

void Mapping::set_device(c10::Device device) {
  const c10::DeviceIndex index = device.index() < 0 ? current_device() : device.index();
  if (device_ >= 0 && device_ != index) refuse_device(device);
  device_ = index;
}

size_t Mapping::map_storage(c10::StorageImpl& original, bool written) {
  if (written) original.mutable_data();  // a lazy copy becomes one before it is written
  for (size_t i = 0; i < storages_.size(); ++i) {
    StoragePair& pair = storages_[i];
    if (pair.original != &original) continue;
    pair.written |= written;
    if (kind_ == Kind::kAlias && written && pair.data != memory::host_address(original.data())) {
      pair.data = memory::host_address(original.data());
      pair.mapped->set_data_ptr_noswap(borrowed(pair.data));
    }
    return i;
  }
  const size_t nbytes = original.nbytes();
  void* data = nullptr;
  c10::DataPtr pointer;
  if (kind_ == Kind::kAlias) {
    data = memory::host_address(original.data());
    pointer = borrowed(data);
  } else {
    pointer = c10::GetCPUAllocator()->allocate(nbytes);
    data = pointer.get();
    read_device(data, original.data(), nbytes, original.device().index());
    add_fallback_bytes(static_cast<int64_t>(nbytes));
  }
  storages_.push_back(
      {&original,
       c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), nbytes, std::move(pointer),
                                             c10::GetCPUAllocator(), true),
       data, nbytes, written});
  return storages_.size() - 1;
}

at::Tensor Mapping::argument(const at::Tensor& tensor, bool written, bool cpu_allowed) {
  if (!tensor.defined()) return tensor;
  c10::TensorImpl& original = *tensor.unsafeGetTensorImpl();
  if (C10_UNLIKELY(!original.is_privateuseone())) {
    if (original.is_cpu() && ((original.dim() == 0 && !written) || cpu_allowed)) return tensor;
    refuse_device(original.device());
  }
  for (TensorPair& pair : pairs_)
    if (pair.original.unsafeGetTensorImpl() == &original) {
      if (written) {
        pair.written = true;
        map_storage(*original.unsafe_storage().unsafeGetStorageImpl(), true);
      }
      return at::Tensor(pair.mapped);
    }
  if (C10_UNLIKELY(original._is_zerotensor()))  // has no bytes: stands for zeros
    return argument(at::zeros(tensor.sizes(), tensor.options()), written, cpu_allowed);
  if (C10_UNLIKELY(!is_plain(original))) return layout_argument(tensor, written);
  const c10::DeviceIndex index = original.device().index();
  if (device_ < 0) {
    device_ = index;
  } else if (C10_UNLIKELY(device_ != index)) {
    refuse_device(original.device());
  }
  c10::StorageImpl& storage = *original.unsafe_storage().unsafeGetStorageImpl();
  const size_t slot = map_storage(storage, written);
  auto mapped = c10::make_intrusive<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(storages_[slot].mapped),
      c10::DispatchKeySet(c10::DispatchKey::CPU) | bits_of(original), original.dtype());
  mapped->set_sizes_and_strides(original.sizes(), original.strides(), original.storage_offset());
  pairs_.push_back({tensor, mapped, written});
  return at::Tensor(std::move(mapped));
}

bool Mapping::maps(const at::Tensor& tensor) const {
  return std::any_of(pairs_.begin(), pairs_.end(), [&tensor](const TensorPair& pair) {
    return pair.mapped.get() == tensor.unsafeGetTensorImpl();
  });
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

void Mapping::finish_storage(StoragePair& pair) {
  const bool resized = pair.mapped->data() != pair.data || pair.mapped->nbytes() != pair.nbytes;
  if (C10_LIKELY(!resized)) {
    if (kind_ == Kind::kCopy) {
      write_device(pair.original->mutable_data(), pair.data, pair.nbytes, pair.original->device().index());
      add_fallback_bytes(static_cast<int64_t>(pair.nbytes));
    }
    return;
  }
  move_to_chip(*pair.mapped);
  const size_t nbytes = pair.mapped->nbytes();
  void* data = memory::host_address(pair.mapped->data());
  pair.original->set_data_ptr_noswap(std::move(pair.mapped->_mutable_data_ptr_no_checks()));
  pair.original->set_nbytes(nbytes);
  pair.mapped->set_data_ptr_noswap(borrowed(data));
}

void Mapping::finish_tensor(TensorPair& pair) {
  c10::TensorImpl& original = *pair.original.unsafeGetTensorImpl();
  c10::TensorImpl& mapped = *pair.mapped;
  if (C10_LIKELY(same_geometry(original, mapped) && original.dtype() == mapped.dtype())) return;
  original.set_storage_and_dtype(original.storage(), mapped.dtype());
  original.set_sizes_and_strides(mapped.sizes(), mapped.strides(), mapped.storage_offset());
  original._set_conj(mapped.is_conj());
  original._set_neg(mapped.is_neg());
}

void Mapping::finish_arguments() {
  for (StoragePair& pair : storages_)
    if (pair.written) finish_storage(pair);
  for (TensorPair& pair : pairs_)
    if (pair.written) finish_tensor(pair);
  for (const LayoutPair& pair : layouts_)
    if (pair.written) finish_layout(pair);
}

at::Tensor Mapping::result(at::Tensor tensor) {
  if (!tensor.defined()) return tensor;
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  for (TensorPair& pair : pairs_)
    if (pair.mapped.get() == impl) return pair.original;
  if (C10_UNLIKELY(!impl->is_cpu())) return tensor;  // made on the chip by a nested call
  if (C10_UNLIKELY(!is_plain(*impl))) return layout_result(tensor);
  c10::StorageImpl& storage = *impl->unsafe_storage().unsafeGetStorageImpl();
  for (StoragePair& pair : storages_)
    if (pair.mapped.get() == &storage) {
      c10::TensorImpl& like = *pairs_[0].original.unsafeGetTensorImpl();
      auto view = c10::make_intrusive<c10::TensorImpl>(
          c10::TensorImpl::VIEW,
          c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(pair.original)),
          (like.key_set() - bits_of(like)) | bits_of(*impl), impl->dtype());
      view->set_sizes_and_strides(impl->sizes(), impl->strides(), impl->storage_offset());
      return at::Tensor(std::move(view));
    }
  if (storage.device_type() != kChip) move_to_chip(storage);
  impl->set_storage_keep_dtype(impl->storage());
  impl->_change_backend_component_keys(storage.device());
  return tensor;
}

}  // namespace isthmus
