#include "dispatch/moving_graph.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "core/host_work.h"
#include "core/movable.h"
#include "memory/memory.h"

namespace isthmus {
namespace {

char* begin_of(const at::Tensor& tensor) { return static_cast<char*>(tensor.storage().mutable_data()); }

// Data pointer, also of an empty tensor, for which it is null.
char* data_of(const at::Tensor& tensor) {
  return begin_of(tensor) + tensor.storage_offset() * static_cast<int64_t>(tensor.element_size());
}

// Writes to one are noticed where the other is saved for a gradient.
void share_version(const at::Tensor& view, const at::Tensor& base) {
  if (view.is_inference() || base.is_inference()) return;
  view.unsafeGetTensorImpl()->set_version_counter(base.unsafeGetTensorImpl()->version_counter());
}

}  // namespace

MovingGraph::MovingGraph(std::shared_ptr<Graph> graph, const Tensors& inputs, const Tensors& results,
                         std::shared_ptr<std::mutex> mutex)
    : graph_(std::move(graph)), mutex_(std::move(mutex)) {
  const auto place = [this](const at::Tensor& tensor, ptrdiff_t input) {
    TORCH_CHECK(tensor.defined() && tensor.device().type() == kChip && tensor.layout() == at::kStrided &&
                    !tensor.is_conj() && !tensor.is_neg() && !tensor._is_zerotensor(),
                "a graph whose tensors move has strided tensors of the chip alone.");
    const size_t storage = storage_of(tensor, input);
    return Place{storage, data_of(tensor) - storages_[storage].reference, at::DimVector(tensor.sizes()),
                 at::DimVector(tensor.strides()), tensor.scalar_type()};
  };
  for (size_t i = 0; i < inputs.size(); ++i) inputs_.push_back(place(inputs[i], static_cast<ptrdiff_t>(i)));
  for (const at::Tensor& tensor : results) results_.push_back(place(tensor, -1));
  if (!storages_.empty()) device_ = (inputs.empty() ? results : inputs).front().device();
  for (size_t i = 0; i < graph_->size(); ++i) find_addresses(i);
}

size_t MovingGraph::storage_of(const at::Tensor& tensor, ptrdiff_t input) {
  char* const begin = begin_of(tensor);
  const size_t bytes = tensor.storage().nbytes();
  const auto known = std::find_if(storages_.begin(), storages_.end(), [&](const Moved& storage) {
    return storage.begin == begin && storage.bytes == bytes;
  });
  if (known != storages_.end()) return static_cast<size_t>(known - storages_.begin());
  size_t first_step = 0;
  if (input < 0 && bytes > 0) {
    const std::optional<size_t> allocated = graph_->allocated_after(begin);
    TORCH_CHECK(allocated, "a result lies in memory from before the capture.");
    first_step = *allocated;
  }
  storages_.push_back({input, input < 0 ? begin : data_of(tensor), begin, begin + bytes, bytes, first_step});
  return storages_.size() - 1;
}

void MovingGraph::find_addresses(size_t index) {
  Step& step = *graph_->steps()[index];
  const bool on_host = step.in_thread();
  auto* const movable = dynamic_cast<Movable*>(&step);
  TORCH_CHECK(movable != nullptr, step.name(), ": its addresses are fixed.");
  movable->visit_addresses([&](void** pointer) {
    for (size_t i = 0; i < storages_.size(); ++i) {
      const Moved& storage = storages_[i];
      if (storage.begin == storage.end || index < storage.first_step) continue;
      char* const begin = on_host ? static_cast<char*>(memory::host_address(storage.begin)) : storage.begin;
      char* const found = static_cast<char*>(*pointer);
      if (found < begin || found >= begin + storage.bytes) continue;
      addresses_.push_back({pointer, i, found - begin - (storage.reference - storage.begin), on_host});
      return;
    }
  });
}

bool MovingGraph::fits(const Tensors& inputs) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Place& place = inputs_[i];
    const at::Tensor& tensor = inputs[i];
    if (tensor.sizes() != at::IntArrayRef(place.sizes) ||
        tensor.strides() != at::IntArrayRef(place.strides) || tensor.scalar_type() != place.dtype ||
        tensor.device() != device_)
      return false;
    const Moved& storage = storages_[place.storage];
    if (storage.input == static_cast<ptrdiff_t>(i)) continue;
    const at::Tensor& first = inputs[static_cast<size_t>(storage.input)];
    if (data_of(tensor) - data_of(first) != place.offset || begin_of(tensor) != begin_of(first)) return false;
  }
  return true;
}

at::Tensor MovingGraph::result(const Place& place, const c10::Storage& storage, const char* reference) const {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(place.dtype));
  const ptrdiff_t bytes = reference + place.offset - static_cast<const char*>(storage.data());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(place.sizes, place.strides,
                                                      bytes / static_cast<ptrdiff_t>(tensor.element_size()));
  return tensor;
}

std::optional<MovingGraph::Tensors> MovingGraph::call(const Tensors& inputs) {
  if (!fits(inputs)) return std::nullopt;
  std::vector<c10::Storage> storages;
  std::vector<char*> references;
  for (const Moved& moved : storages_) {
    const bool fresh = moved.input < 0;
    const auto bytes = static_cast<int64_t>(moved.bytes);
    const at::Tensor tensor = fresh ? at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(device_))
                                    : inputs[static_cast<size_t>(moved.input)];
    storages.push_back(tensor.storage());
    references.push_back(data_of(tensor));
  }
  {
    std::lock_guard<std::mutex> lock(*mutex_);
    if (C10_UNLIKELY(is_asynchronous())) graph_->finish();  // its steps have the addresses
    for (const Address& address : addresses_) {
      char* const base = references[address.storage];
      *address.pointer =
          (address.on_host ? static_cast<char*>(memory::host_address(base)) : base) + address.offset;
    }
    graph_->replay();
  }
  Tensors results;
  for (const Place& place : results_) {
    results.push_back(result(place, storages[place.storage], references[place.storage]));
    const Moved& moved = storages_[place.storage];
    if (moved.input >= 0) share_version(results.back(), inputs[static_cast<size_t>(moved.input)]);
  }
  return results;
}

}  // namespace isthmus
